"""The short tables of the README and of docs/results.md, from the results files."""

import math
import statistics
from typing import Any

from benchmarks import audits, systems
from benchmarks.common import DATA_NAMES, load, markdown, results
from benchmarks.papers import page as papers
from benchmarks.systems import system_row, system_rows
from benchmarks.tables import page as comparison

REAL = {"mnist": "evaluation-mnist-fast", "fashion": "dpac-fashion_mnist-fashion-eps10"}
REAL_FULL = {"mnist": "dpac-mnist-mnist-eps10-long",
             "fashion": "dpac-fashion_mnist-fashion-eps10-long"}
"""Evaluations that also trained the CNN on real images, in the fast setting and in the full one."""
CELLS = tuple((data, epsilon) for data in systems.DATA for epsilon in systems.EPSILONS)

# The README.

IN_README = {"mnist": "60,000 grey images with labels (MNIST)",
             "fashion": "60,000 grey images with labels (Fashion-MNIST)"}
TABLES_IN_README = {"adult": "a table, mixed columns (Adult)",
                    "credit": "a table, a rare class (card frauds)",
                    "breast_cancer": "a table, few rows (breast cancer)"}


def twin_table() -> str:
    """Returns the first real rows of Adult and the first synthetic ones."""
    found = results("showcase")["table"]
    return markdown(("", *found["columns"]), [
        (kind, *line) for kind in ("real", "synthetic") for line in found[kind]])


def choice_table() -> str:
    """Returns what to use for which data: scores at epsilon 1, real ones in brackets, minutes."""
    lines = []
    for data, about in IN_README.items():
        row = system_row("mixture", data, 1.0)
        score = f"accuracy {row['gen2real']['cnn']['accuracy']['mean']:.3f}"
        lines.append((about, "`mixture`", f"{score} ({real_accuracy(data):.3f})",
                      minutes(row["training_seconds"])))
    for name, about in TABLES_IN_README.items():
        ours = results(f"tables/{name}-marginals-eps1")
        lines.append((f"{about}, {ours['rows']:,} rows", "`marginals`",
                      f"AUROC {auroc(name, 1):.3f} ({auroc(name):.3f})",
                      minutes(table_seconds(name))))
    return markdown(("you have", "use", "score at epsilon 1 (real)", "minutes"), lines)


def real_accuracy(data: str, full: bool = False) -> float:
    """Returns the accuracy of a CNN that is trained on as many real images as synthetic ones."""
    stem = (REAL_FULL if full else REAL)[data]
    found = results(stem)
    evaluation = found["metrics"] if "metrics" in found else found["evaluation"]
    if evaluation["setting"]["name"] != ("full" if full else "fast"):
        raise ValueError(f"{stem} is of the setting {evaluation['setting']['name']}")
    return float(evaluation["real2real"]["cnn"]["accuracy"]["mean"])


def auroc(table: str, epsilon: float = math.inf) -> float:
    """Returns the mean AUROC of `marginals` on a table, or of the real rows at no epsilon."""
    kind = "real" if math.isinf(epsilon) else f"marginals-eps{epsilon:g}"
    return comparison.mean_auroc(results(f"tables/{table}-{kind}"))


def table_seconds(table: str) -> float:
    """Returns the median of the seconds that `marginals` takes to train and to draw."""
    return statistics.median(run["wall_seconds"]
                             for run in results(f"tables/{table}-marginals-eps1")["runs"])


def minutes(seconds: float) -> str:
    return f"{math.ceil(seconds / 6) / 10:.1f}"


# The page of results.

KINDS = {"mixture": ("`mixture`", "none: Gaussians fitted to noisy sums"),
         "dpgan": ("`dpgan`", "a GAN, trained by DP-SGD"),
         "dpmerf": ("`dpmerf`", "a generator fitted to one noisy sum"),
         "gpate": ("`gpate`", "teachers, smaller than the paper's, and sums in place of votes"),
         "prototypes-gradients": ("`prototypes` by gradients", "teachers without networks"),
         "datalens": ("`datalens`", "teachers of its authors' code, and the mean of their votes"),
         "prototypes-signs": ("`prototypes` by signs", "teachers without networks"),
         "pategan": ("`pategan`", "teachers, smaller than the paper's"),
         "prototypes-votes": ("`prototypes` by votes", "teachers without networks"),
         "gswgan": ("`gswgan`", "critics, 8 to 10 times narrower than the paper's"),
         "dpac": ("`dpac`", "critics, 8 to 10 times narrower than the paper's")}
"""Rows of `images_table`: their names, and what is trained."""
GAP_TABLES = ("adult", "credit", "loans", "breast_cancer")


def images_table() -> str:
    """Returns accuracies of a CNN in the fast setting, with a star where steps are fewer."""
    rows = {(row["method"], row["dataset"], row["epsilon"]): row for row in system_rows()}
    lines = [(name, kind, *(accuracy(rows[method, *cell]) for cell in CELLS))
             for method, (name, kind) in KINDS.items()]
    real = [f"{real_accuracy(data):.3f}" for data, _ in CELLS]
    return markdown(("system", "networks", *columns()), [("real images", "", *real), *lines])


def columns() -> list[str]:
    return [f"{DATA_NAMES[data]}, epsilon {epsilon:g}" for data, epsilon in CELLS]


def accuracy(row: dict[str, Any]) -> str:
    """Returns the accuracy of a CNN with its interval over trainings, if there are several."""
    score = row["gen2real"]["cnn"]["accuracy"]
    interval = f" ± {systems.half_width(score['values']):.3f}" if "repeats" in row else ""
    return f"{score['mean']:.3f}{interval}" + "\\*" * (row["steps"] < (row["preset_steps"] or 0))


def gap_table() -> str:
    """Returns the scores of the best method at each epsilon, and of the real records."""
    full = {(row["dataset"], row["epsilon"]): row["gen2real"]["cnn"]["accuracy"]["mean"]
            for row in system_rows(full=True) if row["method"] == "mixture"}
    lines = [(f"{DATA_NAMES[data]}, accuracy of a CNN", "`mixture`", full[data, 1.0],
              full[data, 10.0], real_accuracy(data, full=True)) for data in systems.DATA]
    lines += [(f"{name}, mean AUROC", "`marginals`", auroc(name, 1), auroc(name, 10), auroc(name))
              for name in GAP_TABLES]
    return markdown(("data, measure", "method", "epsilon 1", "epsilon 10", "real records"), [
        (data, method, *(f"{score:.3f}" for score in scores)) for data, method, *scores in lines])


def cost_table() -> str:
    """Returns what trainings and steps take on two CPU cores and on one GPU."""
    datalens, datalens_gpu, gpate, gpate_gpu = (results(f"papers-{stem}") for stem in (
        "datalens-mnist-mnist-eps1-8812e44037", "datalens-mnist-mnist-eps10-449d23af32",
        "gpate-mnist-mnist-eps10-code-5bb8757b3a", "gpate-fashion-fashion-eps10-code-13e6eb3f49"))
    step = next(case for case in results("steps")["cases"]
                if case["teachers"] == 4000 and case["devices"] == 2)
    on_gpu = {row["row"]: row["seconds_per_step"]["median"]
              for row in results("accelerator-h200")["rows"]}
    images = [(f"`{method}`, a training on MNIST or Fashion-MNIST", span(method), "", "")
              for method in ("mixture", "dpmerf", "dpgan")]
    return markdown(("what", "one or two CPU cores", "one H200", "memory for teachers"), [
        *images, ("`marginals`, a training on Adult", duration(table_seconds("adult")), "", ""),
        ("a step of DataLens, 4,000 published teachers",
         duration(step["seconds_per_step"]["median"]), f"{on_gpu['datalens-mnist']:.2f} s", ""),
        ("DataLens as published, MNIST: epsilon 1 on the CPU, 10 on the GPU", training(datalens),
         training(datalens_gpu), papers.memory("datalens:table1:mnist-eps1")),
        ("G-PATE by its authors' code, epsilon 10: MNIST on the CPU, Fashion-MNIST on the GPU",
         training(gpate), training(gpate_gpu),
         papers.memory("gpate:table1c:mnist-eps10-code")),
        ("GS-WGAN on MNIST, 2,000 small critics", "", training(
            results("gswgan-mnist-50000-mnist-eps10-long")), "")])


def training(found: dict[str, Any]) -> str:
    """Returns what a whole training took, and in how many steps."""
    return f"{duration(found['training_seconds'])}, {found['privacy']['steps']} steps"


def span(method: str) -> str:
    """Returns the shortest and the longest training of a system, in the fast setting's rows."""
    took = [row["training_seconds"] for row in system_rows()
            if row["method"] == method and row["epsilon"] in systems.EPSILONS]
    return " to ".join(dict.fromkeys(map(duration, (min(took), max(took)))))


def duration(seconds: float) -> str:
    """Returns a time in seconds, minutes or hours."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def attacks_table() -> str:
    """Returns what attacks found, a line for each kind of attack."""
    mechanisms, samples = results("audits"), results("black_box")
    checks = [one for row in mechanisms.values() for one in row["findings"]]
    shares = [one["certified"] / one["claimed"] for one in checks
              if one["measure"] == "mu" and one["check"].endswith("noisy sum")]
    held = sum(one["verdict"] == "holds" for one in checks)
    best = [audits.best_of_samples(row) for row in samples.values()]
    membership = results("evaluation-mnist-full")["metrics"]["membership"]
    strongest = membership["attacks"][membership["strongest"]]["auroc"]["mean"]
    faults = results("faults")["facts"]["faults"]
    fuzz, kills = results("fuzz"), results("kills")
    return markdown(("what is attacked", "what was found", "record"), [
        ("noisy sums of all methods, at mu 3",
         f"{min(shares):.0%} to {max(shares):.0%} of the claimed mu certified", link("audits")),
        ("mechanisms and whole trainings", f"{held} of {len(checks)} checks hold", link("audits")),
        (f"samples of {len(best)} trainings", f"at most epsilon "
         f"{max(one['certified'] for one in best):.2g} certified, of claims of 1 and 10",
         link("black_box")),
        ("membership, from images of GS-WGAN at epsilon 10",
         f"the strongest attack has AUROC {strongest:.3f}; 0.5 is chance",
         link("evaluation-mnist-full")),
        ("the attacks themselves", f"all of {len(faults)} planted faults are caught",
         link("faults")),
        ("damaged inputs", f"{fuzz['failed']} of {fuzz['cases']:,} mishandled", link("fuzz")),
        ("kills during training", f"{kills['lost']} of {kills['kills']:,} lost a run or a charge",
         link("kills"))])


def link(stem: str) -> str:
    """Returns a link to a results file, from a page in docs/."""
    load(stem)
    return f"[{stem}.json](../benchmarks/results/{stem}.json)"
