"""The rules of CONTRIBUTING for files and words."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
VAGUE = {"held": 0, "asked": 0, "given": 0, "say": 0, "own": 8, "told": 1, "heard": 0}
"""How often the package may assign a name that says nothing of what it names: fields of files keep
theirs."""
FRAGMENT = r'"""(What|Of) '
"""The beginning of a docstring that is no sentence about the thing."""


def sources(*folders: str) -> list[Path]:
    return [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]


def assigned(tree: ast.AST) -> list[str]:
    """Names of parameters and of what is assigned, as often as they are."""
    return [node.arg if isinstance(node, ast.arg) else node.id for node in ast.walk(tree)
            if isinstance(node, ast.arg)
            or isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]


@pytest.mark.parametrize("word", VAGUE)
def test_a_name_says_what_it_names(word):
    names = [name for path in sources("dpgen_jax")
             for name in assigned(ast.parse(path.read_text()))]
    assert names.count(word) <= VAGUE[word]


def test_a_vague_name_is_seen():
    tree = ast.parse("def f(held, *own, say=0):\n    told = [asked for asked in held]\n")
    assert sorted(assigned(tree)) == ["asked", "held", "own", "say", "told"]


def test_held_is_a_rare_word():
    text = "\n".join(path.read_text() for path in sources("dpgen_jax"))
    assert len(re.findall(r"\bheld\b(?![- ]out)", text)) < 10


def test_a_docstring_says_what_the_thing_is():
    fragments = [path.name for path in sources("dpgen_jax", "benchmarks", "tests")
                 if re.search(FRAGMENT, path.read_text())]
    assert not fragments and re.search(FRAGMENT, '"""' + "Of all cells.")


MOST_PARAMETERS = 6
MANY = {
    "fit": "what a user may say", "load": "what a user may say", "repeat": "what a user may say",
    "__call__": "what a user may say, of `audit`",
    "celeba": "options of `load`", "folder": "options of `load`", "places365": "options of `load`",
    "confident_gnmax_rdp": "a formula of a paper", "total_rdp": "a formula of a paper",
    "smooth_sensitivity": "a formula of a paper", "critic_loss": "a formula of a paper",
    "block": "a compiled program, whose arguments are sharded and donated by their place",
    "by_slabs": "called in the place of `block`"}
"""Functions that may take more parameters, and why."""


def parameters(function: ast.FunctionDef) -> int:
    """The number of parameters of a function, without `self`."""
    args = function.args
    names = [arg.arg for arg in (*args.posonlyargs, *args.args, *args.kwonlyargs)]
    stars = (args.vararg is not None) + (args.kwarg is not None)
    return len(names) + stars - (names[:1] in (["self"], ["cls"]))


def of_many_parameters(tree: ast.AST) -> list[str]:
    return [node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)
            and parameters(node) > MOST_PARAMETERS]


def test_parameters_that_travel_together_are_one():
    names = [name for path in sources("dpgen_jax")
             for name in of_many_parameters(ast.parse(path.read_text()))]
    assert sorted(names) == sorted(MANY)
    tree = ast.parse("def six(self, a, b, c, d, e, f): ...\ndef seven(a, b, c, d, e, *f, g): ...")
    assert of_many_parameters(tree) == ["seven"]


def without_shape(tree: ast.AST) -> list[str]:
    """Fields that are arrays, of which the docstring gives no shape in brackets."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            text = ast.get_docstring(node) or ""
            for field in node.body:
                if (isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
                        and re.search(r"\b(Array|ndarray)\b", ast.unparse(field.annotation))
                        and "Callable" not in ast.unparse(field.annotation)):
                    name = field.target.id
                    entry = re.search(rf"^ *{name}: (.*?)(?=^ *\w+: |\Z)", text, re.M | re.S)
                    if "[" not in (entry[1] if entry else text.partition("Attributes:")[0]):
                        found.append(f"{node.name}.{name}")
    return found


def test_the_shape_of_an_array_stands_beside_its_field():
    missing = [name for path in sources("dpgen_jax")
               for name in without_shape(ast.parse(path.read_text()))]
    assert not missing
    tree = ast.parse('class A:\n    """Two.\n\n    Attributes:\n        x: int32 [n].\n'
                     '        y: float32.\n    """\n    x: Array\n    y: Array | None\n')
    assert without_shape(tree) == ["A.y"]
