"""The privacy boundary, read off the source: who opens private values, and who imports whom.

Each rule is a function of source text, and is shown to fail on a line that breaks it.
"""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import dpgen_jax

ROOT = Path(dpgen_jax.__file__).parent
SOURCES = {path.relative_to(ROOT).as_posix(): path.read_text()
           for path in sorted(ROOT.rglob("*.py"))}
INSIDE = ("private/", "aggregation/", "federated/answer.py")
OPENERS = {"unseal", "_sealed"}

# Folder or file -> what of this package it may import; anything not named here is a command at the
# top, which opens nothing and may import everything. The longest matching row holds.
MAY_IMPORT = {
    "core/": {"core"},
    "core/errors.py": set(),
    "core/files.py": {"core.errors"},
    "core/storage.py": {"core.errors"},
    "core/terms.py": set(),
    "core/schema.py": set(),
    # aggregation for a type annotation only
    "core/run_folder.py": {"core", "version"},
    "core/types.py": {"core.errors", "core.schema", "core.terms", "aggregation"},
    "core/config.py": {"core.types", "core.schema", "core.files", "core.errors"},
    "accountant/": {"accountant", "core.terms", "core.files", "core.errors"},
    "private/": {"private", "core.types", "core.errors", "core.terms", "core.arrays", "core.files",
                 "core.hosts",  # which tells other processes what comes, and no record
                 "accountant.pate"},
    "aggregation/": {"aggregation", "core.types", "core.errors", "core.terms", "accountant.events",
                     "accountant.smooth_sensitivity"},
    "nets/": {"nets", "core.types", "core.errors", "core.config"},
    "methods/": {"methods", "nets", "aggregation", "core.types", "core.config", "core.errors",
                 "core.terms",
                 "accountant.smooth_sensitivity",  # the declared numbers of a sanitiser
                 # formulas of papers, for numbers beside the proven one
                 "accountant.published"},
    "presets/": {"presets", "methods", "core.terms", "core.types", "core.errors",
                 "core.console", "core.files"},
    "data/": {"data", "core.types", "core.terms", "core.errors", "core.arrays", "core.files",
              "core.console",  # a question before a download
              "core.hosts",  # on how many machines a run is: each has a share of mapped records
              "accountant.events"},
    "evaluation/": {"evaluation", "nets", "core", "release", "data"},
    "release/": {"release", "methods", "core", "version", "data.table.transform",
                 "data.table.constraints", "data.table.rules",
                 "data.table.columns",
                 "accountant.events"},
    # the glue of a run: it handles sealed values and opens none
    "run/": {"run", "release", "core", "methods", "presets", "private", "aggregation",
             "accountant", "data", "evaluation.networks", "nets.classifiers", "version"},
    # flags to requests
    "cli/": {"cli", "core", "methods", "presets", "run"},
    # attacks: they see of a run what its data holder sees, and open nothing
    "audit/": {"audit", "core", "accountant", "aggregation", "data", "evaluation", "federated",
               "methods", "nets", "presets", "private", "release", "run", "version"},
    "audit/__main__.py": {"audit", "cli", "core", "data", "methods", "presets"},
    # the server's and the client's own glue; of its files only answer.py opens anything
    "federated/": {"federated", "accountant", "aggregation.noise", "aggregation.mechanism",
                   "core",
                   "data", "methods", "private", "release", "run"},
}
OUTSIDE = {"accountant/": {"numpy", "scipy", "dp_accounting", "filelock"}, "core/errors.py": set(),
           "core/terms.py": set()}
METHODS_NEVER = {"numpy.random", "secrets", "random"}


def imports(source: str, path: str = "a.py") -> set[str]:
    """Dotted names of all imports, at any depth: `from a.b import c` is both a.b and a.b.c."""
    package = ["dpgen_jax", *Path(path).parts[:-1]]
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[:len(package) - node.level + 1] if node.level else []
            base = ".".join([*base, *(node.module or "").split(".")]).strip(".")
            found.update({base, *(f"{base}.{alias.name}" for alias in node.names)})
    return found


def names(source: str) -> set[str]:
    """Every identifier, attribute and imported name, and strings (for getattr)."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.alias(name=name):
                found.add(name)
            case ast.Constant(value=str(text)) if text.isidentifier():
                found.add(text)
    return found


def dotted(node: ast.AST) -> str:
    """`a.b.c` of a name or attribute, else nothing."""
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def opens(path: str, source: str) -> set[str]:
    """Uses of the sealed field outside `private/` and `aggregation/`."""
    if path.startswith(INSIDE) or path == "core/types.py":
        return set()
    return names(source) & OPENERS


def forbidden_imports(path: str, source: str) -> set[str]:
    row = max((row for row in MAY_IMPORT if path.startswith(row)), key=len, default=None)
    if row is None:
        return set()
    found, bad = imports(source, path), set()
    for name in found:
        top, _, rest = name.partition(".")
        if top == "dpgen_jax":
            allowed = not rest or any(f"{rest}.".startswith(f"{a}.") for a in MAY_IMPORT[row])
            # `from dpgen_jax import x` and `from a import b` list the package as well as its part
            if not allowed and not any(n != name and n.startswith(f"{name}.") for n in found):
                bad.add(name)
        elif row in OUTSIDE and top not in OUTSIDE[row] | set(sys.stdlib_module_names):
            bad.add(name)
    return bad


def doors(path: str, source: str) -> set[str]:
    """Functions that open a private value and do not seal what they return: how a value gets out.
    Host-side bookkeeping that is public under replace-one is listed in `PUBLIC`."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.FunctionDef) or node.name == "unseal":
            continue
        called = {dotted(call.func) for call in ast.walk(node) if isinstance(call, ast.Call)}
        if "unseal" in called and "Private" not in ast.unparse(node.returns or ast.Constant("")):
            found.add(f"{path}:{node.name}")
    return found


PUBLIC = {"aggregation/mechanism.py:release",  # the door: bounded, summed, noised
          # single releases with noise of their own
          "aggregation/single_releases.py:class_counts",
          "aggregation/single_releases.py:bounds",
          "aggregation/single_releases.py:categories",
          "aggregation/single_releases.py:kind_counts",
          "aggregation/single_releases.py:value_counts",
          "aggregation/teacher_votes.py:upper_bound",
          "private/kept_votes.py:for_the_holder",  # a terminal of the data holder
          "private/kept_votes.py:append",  # into a file of private/
          # one client's answer: bounded, and noised by the client before it leaves
          "federated/answer.py:compile_answer", "federated/answer.py:answer",
          # what moved when an auditor changed a record, for the data holder
          "private/interference.py:_visited", "private/interference.py:differing",
          "private/streaming.py:warmed",  # how far a warm-up has come is public
          "private/streaming.py:first_unit",  # which units a block holds is public
          "private/records.py:count",  # n is public under replace-one
          "private/records.py:keyed",  # a keyed digest, kept in the journal
          "private/records.py:fingerprint"}  # a keyed digest, kept in private/


# Post-processing: what mends rows, all of a release, and what is fitted to released counts.
PUBLIC_SIDE = (
    "data/table/constraints.py", "data/table/rules.py", "data/table/transform.py", "release/",
    *(f"methods/shared/table_{name}.py" for name in ("models", "plan", "rounds", "tree", "zoom")))
HOLD_RECORDS = {"Dataset", "Private", "Records"}


def reached(path: str, sources: dict[str, str]) -> set[str]:
    """The file and all of this package that it imports, by whatever way."""
    found, left = set(), [path]
    while left:
        path = left.pop()
        if path in sources and path not in found and path != "core/types.py":
            found.add(path)
            left += [f"{name.removeprefix('dpgen_jax.').replace('.', '/')}.py"
                     for name in imports(sources[path], path)]
    return found


def hold_records(path: str, sources: dict[str, str]) -> set[str]:
    """Files that this one reaches and that name what records are held by."""
    return {other for other in reached(path, sources)
            if names(sources[other]) & (HOLD_RECORDS | OPENERS)}


def unsafe(source: str) -> set[str]:
    """Pickle, numpy's global generator, old-style keys, and arrays loaded with objects."""
    found = {name for name in imports(source)
             if name.split(".")[0] in {"pickle", "cloudpickle", "dill", "joblib", "shelve"}}
    if "class _Unpickler(pickle._Unpickler):\n" in source:  # whose opcodes import and call nothing
        used = {name for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Attribute)
                and (name := dotted(node)).startswith("pickle.")}
        if all(name.split(".")[1] == "_Unpickler" or name.split(".")[1].isupper()
               for name in used):
            found.discard("pickle")
    for node in ast.walk(ast.parse(source)):
        name = dotted(node) if isinstance(node, ast.Attribute) else ""
        if name.startswith(("np.random.", "numpy.random.")) and name.split(".")[2] not in {
                "default_rng", "Generator"}:
            found.add(name)
        if name.split(".")[-1] in {"PRNGKey", "read_pickle"}:
            found.add(name)
        if isinstance(node, ast.ImportFrom) and node.module in ("numpy.random", "random"):
            found.add(node.module)
        if isinstance(node, ast.Call) and dotted(node.func) in {"np.load", "numpy.load"}:
            keywords = {k.arg: ast.unparse(k.value) for k in node.keywords}
            if keywords.get("allow_pickle", "False") != "False":
                found.add("np.load")
        if isinstance(node, ast.Call) and dotted(node.func) in {"eval", "exec"}:
            found.add(dotted(node.func))
    return found


def parses(path: str, source: str) -> bool:
    """Whether a file that is no part of the command line imports the parser of flags."""
    is_command = "/" not in path or path.startswith("cli/") or path == "audit/__main__.py"
    return not is_command and any(name.split(".")[0] == "tyro" for name in imports(source, path))


@pytest.mark.parametrize("path", SOURCES)
def test_no_file_breaks_a_rule(path):
    source = SOURCES[path]
    assert not parses(path, source)
    assert not opens(path, source)
    assert not forbidden_imports(path, source)
    assert not unsafe(source)


FLAG = re.compile(r"(?<![\w-])--[a-z]")
IN_FILES = {
    # texts of files, the same whoever asked: privacy.json, schema.yaml, README.txt, sample.py
    "data/images/files.py": 3, "data/images/photographs.py": 2, "data/tfds.py": 1,
    "data/table/draft.py": 2, "run/missing.py": 2, "run/monitor.py": 1, "run/planning.py": 1,
    "release/documents.py": 2, "release/standalone.py": 11,
    "audit/folder/__init__.py": 1}
"""How many strings of a file may hold a flag. Others name it by `core.errors.option`."""


def flags_in_strings(source: str) -> int:
    """The strings that hold a flag, docstrings and comments aside."""
    tree = ast.parse(source)
    docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    return sum(1 for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(
        node.value, str) and id(node) not in docs and FLAG.search(node.value))


@pytest.mark.parametrize("path", [path for path in SOURCES if "/" in path and not path.startswith(
    "cli/") and path != "audit/__main__.py"])
def test_options_are_named_for_whichever_front_end_asks(path):
    assert flags_in_strings(SOURCES[path]) == IN_FILES.get(path, 0)


def test_a_flag_in_a_string_is_seen():
    source = 'def f():\n    """As --a."""\n    raise UserError(f"pass --size {n}")'
    assert flags_in_strings(source) == 1


@pytest.mark.parametrize("path", [path for path in SOURCES if path.startswith(PUBLIC_SIDE)])
def test_post_processing_reaches_no_record(path):
    """Nor does anything that it imports: what it makes is a function of released values."""
    assert not hold_records(path, SOURCES)


def test_every_module_of_the_public_side_is_there():
    assert all(any(path.startswith(prefix) for path in SOURCES) for prefix in PUBLIC_SIDE)


@pytest.mark.parametrize(("first", "second"), [
    ("from dpgen_jax.data.base import Dataset", ""),
    ("from dpgen_jax.data import other", "from dpgen_jax.core.types import Records"),
    ("import dpgen_jax.data.other", "def f(x: 'Private'): ...")])
def test_a_way_to_records_is_caught(first, second):
    assert hold_records("data/a.py", {"data/a.py": first, "data/other.py": second})


def test_release_is_the_only_way_out():
    found = {door for path, source in SOURCES.items() for door in doors(path, source)}
    assert found == PUBLIC


def test_every_folder_has_a_row():
    folders = {f"{path.split('/')[0]}/" for path in SOURCES if "/" in path}
    assert folders == {row for row in MAY_IMPORT if row.endswith("/")}


@pytest.mark.parametrize(("path", "source"), [
    ("methods/a.py", "from dpgen_jax.core.types import unseal"),
    ("run/loop.py", "x = state.units._sealed"),
    ("run/lifecycle.py", "import dpgen_jax.core.types as t\nx = t.unseal(records)"),
    ("run/a.py", "x = getattr(units, '_sealed')"),
    ("data/a.py", "from dpgen_jax.core.types import unseal as harmless")])
def test_opening_a_private_value_elsewhere_is_caught(path, source):
    assert opens(path, source)
    assert not opens("private/a.py", source)


@pytest.mark.parametrize(("path", "source"), [
    ("accountant/a.py", "import jax"),
    ("accountant/a.py", "def f():\n    from jax import numpy"),
    ("accountant/a.py", "from dpgen_jax.core.types import UserError"),
    ("methods/a.py", "from dpgen_jax.private import teachers"),
    ("methods/a.py", "from dpgen_jax import private"),
    ("methods/a.py", "from dpgen_jax.private.teachers import stack"),
    ("methods/a.py", "from dpgen_jax.accountant.ledger import Ledger"),
    ("methods/a.py", "from ..private import teachers"),
    ("data/a.py", "import dpgen_jax.private.records"),
    ("evaluation/a.py", "from dpgen_jax.aggregation.mechanism import release"),
    ("release/a.py", "from dpgen_jax.private.records import seal"),
    ("release/a.py", "from dpgen_jax.accountant import ledger"),
    ("private/a.py", "from dpgen_jax.aggregation.mechanism import release"),
    ("aggregation/a.py", "from dpgen_jax.accountant import ledger"),
    ("nets/a.py", "from dpgen_jax.methods import datalens"),
    ("run/a.py", "from dpgen_jax.cli import parser"), ("audit/a.py", "import dpgen_jax.cli"),
    ("core/a.py", "from dpgen_jax.cli.parser import FLAT"),
    ("cli/a.py", "from dpgen_jax.private import records")])
def test_an_import_across_the_boundary_is_caught(path, source):
    assert forbidden_imports(path, source)


@pytest.mark.parametrize("path", ["core/a.py", "methods/a.py", "run/a.py", "audit/a.py"])
def test_the_parser_of_flags_below_the_commands_is_caught(path):
    assert parses(path, "def f():\n    import tyro.conf") and not parses("cli/a.py", "import tyro")


@pytest.mark.parametrize("source", [
    "def f(x: Private[Array]) -> Array:\n    return unseal(x)",
    "def f(x):\n    return unseal(x).mean()",
    "def f(x):\n    def g():\n        return unseal(x)\n    return g()"])
def test_another_way_out_is_caught(source):
    assert doors("aggregation/a.py", source)


def test_code_that_seals_what_it_opened_is_no_door():
    assert not doors("private/a.py", "def f(x) -> Private[Array]:\n    return Private(unseal(x))")


@pytest.mark.parametrize("source", [
    "import pickle", "from cloudpickle import dumps", "def f():\n    import dill",
    "x = np.load(path, allow_pickle=True)", "x = np.load(path, allow_pickle=flag)",
    "np.random.seed(0)", "x = np.random.normal(size=3)", "x = numpy.random.rand()",
    "from numpy.random import rand", "from random import random",
    "key = jax.random.PRNGKey(0)", "x = pd.read_pickle(path)", "x = eval(text)",
    "import pickle\nclass _Unpickler(pickle._Unpickler):\n    x = pickle.loads(text)"])
def test_unsafe_code_is_caught(source):
    assert unsafe(source)


@pytest.mark.parametrize("source", [
    "x = np.random.default_rng(0)", "x = np.load(path, allow_pickle=False)", "x = np.load(path)",
    "key = jax.random.key(0)", "def f(rng: np.random.Generator): ..."])
def test_safe_code_is_not(source):
    assert not unsafe(source)


@pytest.mark.slow
@pytest.mark.parametrize("module", [
    "accountant.ledger", "accountant.composition", "accountant.composition", "accountant.published",
    "accountant.smooth_sensitivity"])
def test_the_accountant_never_loads_jax(module):
    subprocess.run(
        [sys.executable, "-c", f"import dpgen_jax.{module}, sys; assert 'jax' not in sys.modules"],
        check=True)
