"""The peers: what is installed for each, what its epsilon is for, and what it does not pay for."""

from __future__ import annotations

from benchmarks.tables.methods import Peer

ADDED = "add or remove one row"
MST = "mbi is the estimator; the mechanism MST is this benchmark's own"
_MBI = ("mbi==2.0.0", "pandas", "networkx", "scipy")
_DPMM = Peer(("dpmm==0.1.9",), "with_dpmm", {}, ADDED,
             "whether a column has nulls, and whether it has one value alone")
# Its dependencies by name, without opacus and torch, gigabytes that MST and AIM do not use.
_SMARTNOISE = Peer(
    ("smartnoise-synth==1.0.8", "smartnoise-sql==1.0.10", "antlr4-python3-runtime==4.9.3",
     "opendp>=0.14.1,<0.15", "deprecated", "wrapt", "pandas>=2.0.1,<3", "graphviz", "sqlalchemy",
     "greenlet", "typing-extensions", "pyyaml", "faker", "tzdata", "python-dateutil", "six", "pytz",
     "disjoint-set>=0.9,<0.10", "mbi>=1.1,<2", "attrs", "numpy", "scipy", "networkx", "jax",
     "jaxlib", "ml-dtypes", "opt-einsum", "chex", "toolz", "absl-py", "optax"),
    "with_smartnoise", {}, ADDED, "the number of rows, exactly",
    pip=("--no-deps", "--no-binary=antlr4-python3-runtime"))


def _also(peer: Peer, note: str = "", **options: str) -> Peer:
    return Peer(peer.requirements, peer.program, options, peer.relation, peer.reads, note, peer.pip)


PEERS: dict[str, Peer] = {
    "dpmm-mst": _also(_DPMM, pipeline="MSTPipeline"),
    "dpmm-aim": _also(_DPMM, pipeline="AIMPipeline"),
    "dpmm-privbayes": _also(_DPMM, pipeline="PrivBayesPipeline"),
    "mbi-mst": Peer(_MBI, "with_mbi", {"squared_sensitivity": 1}, ADDED, "nothing", MST),
    "mbi-mst-replaced": Peer(_MBI, "with_mbi", {"squared_sensitivity": 2}, "replace-one", "nothing",
                             MST),
    "smartnoise-mst": _also(_SMARTNOISE, synthesizer="mst"),
    "smartnoise-aim": _also(_SMARTNOISE, synthesizer="aim"),
    "datasynthesizer": Peer(
        ("DataSynthesizer==0.1.13",), "with_datasynthesizer", {"parents": 2}, ADDED,
        "which values there are, the share of nulls", "two parents a column"),
}
"""Name -> the peer."""
UNTRIED = {
    "smartnoise-synth 1.0.8: DPCTGAN, PATECTGAN, DPGAN, PATEGAN":
        "need opacus and torch, gigabytes that were not fetched",
    "synthcity 0.2.12": "needs torch below 2.3, and packages that come as source alone",
    "dpart 0.1.2": "pins NumPy 1.22.3, which has no wheel for the Python here",
}
"""Peers that have no program here -> why."""
