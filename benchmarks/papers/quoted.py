"""Figures of others who ran the papers' systems, each with its source; none was measured here.

The protocols differ (classifier, its schedule, the epoch that is picked, delta), and so do the
neighbours: compare within a source. A figure of one paper in the table of another is a row of that
table, and not repeated here, but for those that its authors measured themselves.
"""

from __future__ import annotations

import dataclasses

from benchmarks.papers.trainings import CNN, FID, MLP, SCORE

GSWGAN = "re-run by GS-WGAN's authors, Chen et al. 2020, Table 1"
BENCH = "re-run by DPImageBench, CCS 2025"
SOK = "re-run with the authors' code in SoK: Privacy-Preserving Data Synthesis (Hu et al. 2024)"
DATALENS = "re-run by DataLens's authors, Wang et al. 2021, Table 1"
DATALENS_IS = "re-run by DataLens's authors, Wang et al. 2021, Table 12"


@dataclasses.dataclass(frozen=True)
class Quote:
    """A figure that somebody else reports.

    Attributes:
      system: The method.
      data: A name of `sources.SOURCES`.
      epsilon: Its epsilon, as claimed there.
      metric: The metric.
      value: As printed.
      source: Who reports it.
    """

    system: str
    data: str
    epsilon: float
    metric: str
    value: str
    source: str


def _quotes(source: str, epsilon: float, metrics: tuple[str, ...], text: str) -> list[Quote]:
    """Return the quotes of lines SYSTEM DATA VALUE..., a value for each metric, - for none."""
    quotes = []
    for line in text.strip().splitlines():
        system, data, *values = line.split()
        quotes += [Quote(system, data, epsilon, metric, value, source)
                   for metric, value in zip(metrics, values, strict=True) if value != "-"]
    return quotes


QUOTES = (
    *_quotes(GSWGAN, 10.0, (SCORE, FID, MLP, CNN), """
        gpate mnist 3.85 177.16 0.25 0.51
        gpate fashion 3.35 205.78 0.30 0.50
        dpcgan mnist 4.76 179.16 0.60 0.63
        dpcgan fashion 3.55 243.80 0.50 0.46
        dpmerf mnist 2.91 247.53 0.63 0.63
        dpmerf fashion 2.32 267.78 0.56 0.62
        dpmerf_ae mnist 3.06 161.11 0.54 0.68
        dpmerf_ae fashion 3.68 213.59 0.56 0.62"""),
    *_quotes(SOK, 10.0, (CNN,), """
        gpate mnist 0.420
        datalens mnist 0.539"""),
    *_quotes(BENCH, 1.0, (CNN,), """
        gswgan mnist 0.724
        gswgan fashion 0.527
        gswgan gender-s 0.614
        dpgan mnist 0.924
        dpgan fashion 0.718
        dpgan gender-s 0.779
        dpmerf mnist 0.803
        dpmerf fashion 0.622
        dpmerf gender-s 0.810"""),
    *_quotes(BENCH, 10.0, (CNN, FID), """
        gswgan mnist 0.753 47.7
        gswgan fashion 0.567 97.2
        gswgan gender-s 0.615 290.0
        dpgan mnist 0.927 30.3
        dpgan fashion 0.703 76.9
        dpgan gender-s 0.892 31.7
        dpmerf mnist 0.813 106.3
        dpmerf fashion 0.622 106.4
        dpmerf gender-s 0.812 147.9"""),
    *_quotes(DATALENS, 1.0, (CNN,), """
        gswgan mnist 0.1432
        gswgan fashion 0.1661"""),
    *_quotes(DATALENS, 10.0, (CNN,), """
        gswgan mnist 0.8075
        gswgan fashion 0.6579"""),
    *_quotes(DATALENS_IS, 10.0, (SCORE, FID), """
        gswgan mnist 8.59 58.77
        gswgan fashion 5.87 135.47"""),
)


def of(system: str, data: str, epsilon: float, metric: str) -> list[Quote]:
    """Return what others report of one system, data set, epsilon and metric."""
    return [quote for quote in QUOTES if (
        quote.system, quote.data, quote.epsilon, quote.metric) == (system, data, epsilon, metric)]
