"""Attack what every method promises, and write what is certified beside what is claimed.

    python -m benchmarks.audits [--only NAME ...] [--seconds 40] [--minutes 30] [--again]
    python -m benchmarks.audits --faults          # writes faults.json: every planted fault
    python -m benchmarks.audits --black-box       # writes black_box.json: samples alone

Each row is a command of `python -m dpgen_jax.audit`, run in a process of its own as a user would: a
mechanism with the noise lowered and at its preset's own, or a whole training with canaries. It goes
on where it stopped: rows that were measured by the same command on the same commit are kept, and
after --minutes no further row begins. The noise is from the operating system: another run certifies
a little more or less.
"""

import json
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchmarks import common

MECHANISMS, TRAININGS = ({name: tuple(shlex.split(words)) for name, words in kind.items()}
                         for kind in common.read_yaml(__file__, "audits.yaml").values())
FIELDS = ("command", "findings", "exit_code", "refused", "seconds", "load_average", "commit")
SHOWN_DELTA = 0.01
"""of the epsilons of mechanisms that tables show"""
HALF_OF_CLIENTS = {"gswgan, federated on glyphs": "50", "fedavg_gan, federated on glyphs": "100"}
"""canaries, where an attack on samples knows the other half"""
SAMPLES: dict[str, tuple[str, ...]] = {
    name: (*words[:-1], HALF_OF_CLIENTS.get(name, words[-1]), "--black-box")
    for name, words in TRAININGS.items() if not name.startswith("topagg_sgd")}
"""trainings whose release makes samples: that of a classifier makes none"""


def audited(arguments: tuple[str, ...], seconds: float) -> dict[str, Any]:
    """Return the record of one audit, as the command prints it, or the line why there is none."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        timed = "--canaries" not in arguments and "--faults" not in arguments
        extra = ("--seconds", str(seconds)) if timed else ()
        done = subprocess.run(
            [sys.executable, "-m", "dpgen_jax.audit", *arguments, *extra, "--json", "--out",
             folder], capture_output=True, text=True)
    row = {"command": ["audit", *arguments, *extra], "seconds": time.monotonic() - started}
    if not done.stdout:
        return row | {"refused": done.stderr.strip().splitlines()[-1:]}
    report = json.loads(done.stdout)
    return row | {name: report[name] for name in ("findings", "exit_code", "facts")}


def table(rows: dict[str, Any], names: Iterable[str]) -> str:
    """Return the findings that have a number as a table in markdown, epsilon at one delta."""
    lines = ["| what was attacked | measure | claimed | certified | share |",
             "| --- | --- | --- | --- | --- |"]
    for name in names:
        for finding in rows.get(name, {}).get("findings", ()):
            shown = finding["measure"].startswith(("mu", "chance")) or (
                finding["measure"] == f"epsilon at delta {SHOWN_DELTA:g}" or name in TRAININGS)
            if not shown or finding["claimed"] is None:
                continue
            share = f"{finding['certified'] / finding['claimed']:.0%}" if finding["claimed"] else ""
            check = finding["check"].partition(": ")[2]
            lines.append(f"| {name}: {check} | {finding['measure']} | {finding['claimed']:.3g} | "
                         f"{finding['certified']:.3g} | {share} |")
    return "\n".join(lines)


def best_shares(rows: dict[str, Any], names: Iterable[str]) -> dict[str, list[float]]:
    shares = {name: [finding["certified"] / finding["claimed"]
                     for finding in rows.get(name, {}).get("findings", ())
                     if finding["measure"].startswith(("mu", "epsilon")) and finding["claimed"]]
              for name in names}
    return {name: found for name, found in shares.items() if found}


def picture(rows: dict[str, Any]) -> Path:
    """Draw what was certified beside the claim, for every mechanism and every training."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 7), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    titles = {"one release (a dot for each attack)": MECHANISMS,
              "a whole training with canaries (likewise)": TRAININGS}
    for axes, (title, names) in zip(figure.subplots(1, 2), titles.items(), strict=True):
        shares = best_shares(rows, names)
        places = range(len(shares))
        axes.barh(places, [max(found) for found in shares.values()], color="0.8")
        for place, found in zip(places, shares.values(), strict=True):
            axes.plot(found, [place] * len(found), "k.", markersize=4)
        axes.axvline(1, color="tab:red")
        axes.set_yticks(places, shares, fontsize=8)
        axes.invert_yaxis()
        axes.set_xlim(0, max(1.05, 1.02 * max(map(max, shares.values()), default=0)))
        axes.set_xlabel("certified, as a share of the claim (red)")
        axes.set_title(title, fontsize=10)
    path = common.RESULTS / "audits.png"
    figure.savefig(path)
    return path


def best_of_samples(row: dict[str, Any]) -> dict[str, Any]:
    """Return what samples alone certify of a training, by the attack that certifies most."""
    return max((finding for finding in row["findings"] if "samples alone" in finding["check"]
                and "the best of" not in finding["check"]),
               key=lambda finding: finding["certified"])


def caught(row: dict[str, Any], fault: str) -> list[str]:
    """Return the attacks on a planted fault; behind one that did not catch it stands why."""
    each = (finding["check"].split(" | ") + [finding["verdict"]] for finding in row["findings"]
            if finding["check"].startswith(f"{fault} | "))
    return [attack if verdict == "holds" else f"{attack} ({verdict})"
            for _, attack, verdict in each]


def main(argv: list[str] | None = None) -> None:
    script = common.Script("audits", __doc__)
    script.add_argument("--only", nargs="*", choices=[*MECHANISMS, *TRAININGS], metavar="NAME",
                        help="names of rows; all if left out")
    script.add_argument("--seconds", type=float, default=40.0,
                        help="how long each mechanism is attacked, beside compilation")
    script.add_argument("--faults", action="store_true", help="plant faults, and nothing else")
    script.add_argument("--black-box", action="store_true",
                        help="attack the samples of trainings, and nothing else")
    script.add_argument("--minutes", type=float, default=float("inf"),
                        help="after this long no further row begins")
    script.add_argument("--again", action="store_true",
                        help="measure rows again that this commit has measured")
    args = script.begin(argv)
    if args.faults:
        script.save(audited(("--faults",), args.seconds), stem="faults")
        return
    if args.black_box:
        script.save(script.earlier("black_box") | {
            name: audited(SAMPLES[name], args.seconds) for name in args.only or SAMPLES},
            stem="black_box")
        return
    known, until = {**MECHANISMS, **TRAININGS}, time.monotonic() + 60 * args.minutes
    rows, commit = script.earlier(), common.git()["commit"]
    for name in args.only or known:
        before = rows.get(name, {})
        if before.get("commit") == commit and "findings" in before and not args.again:
            continue
        if time.monotonic() > until:
            print(f"{args.minutes:g} minutes are over: {name} and what follows wait", flush=True)
            break
        rows[name] = audited(known[name], args.seconds) | {
            "load_average": common.machine()["load_average"], "commit": commit}
        print(name, f"{rows[name]['seconds']:.0f} s", rows[name].get("refused", ""), flush=True)
        kept = {name: {field: rows[name][field] for field in FIELDS if field in rows[name]}
                for name in known if name in rows}
        script.save(kept)
        picture(kept)


if __name__ == "__main__":
    main()
