"""Reads an optimised program (`compiled.as_text()`): of what is an integer sum made?

`sums` follows every int32 sum over units that a loop carries, and every result of that shape, back
to where its integers come from: into fusions, calls and branches, to the right element of a tuple.
A float on the way is a value that a compiler may have computed anew for this use; what a loop
carries is memory. The walk ends at loops that `aggregation.bound` made.
"""

from __future__ import annotations

import dataclasses
import re

from dpgen_jax.aggregation.bound import ENFORCED

HEAD = re.compile(r"^(?:ENTRY )?%(\S+) \(.*\{$")
LINE = re.compile(r"^\s*(ROOT )?%(\S+) = (.*)$")
NAME = re.compile(r"%([^\s,(){}]+)")


@dataclasses.dataclass(frozen=True)
class Op:
    """One instruction. called: other computations, in the order of the text."""

    name: str
    shape: str
    code: str
    operands: tuple[str, ...]
    called: tuple[str, ...]
    rest: str

    @property
    def index(self) -> int:
        return int(re.search(r"index=(\d+)", self.rest)[1])

    @property
    def number(self) -> int:
        """The number of a parameter."""
        return int(self.rest[:self.rest.index(")")])

    @property
    def enforced(self) -> bool:
        return self.code == "while" and re.search(rf'op_name="[^"]*{ENFORCED}', self.rest)


@dataclasses.dataclass(frozen=True)
class Program:
    """ops: by computation and name; roots: the root of each computation."""

    ops: dict[str, dict[str, Op]]
    roots: dict[str, Op]
    entry: str


@dataclasses.dataclass
class Sources:
    """from_floats: operations that made integers or bits of floats; enforced: names of the loops
    that the walk ended at."""

    from_floats: set[str]
    enforced: set[str]


def _closing(text: str) -> int:
    """The place after the parenthesis that closes the first character."""
    depth = 0
    for at, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if not depth:
            return at + 1
    raise ValueError(text)


def parse(text: str) -> Program:
    ops, roots, entry, here = {}, {}, "", ""
    for line in text.splitlines():
        if head := HEAD.match(line):
            here = head[1]
            ops[here] = {}
            entry = here if line.startswith("ENTRY") else entry
        elif here and (found := LINE.match(line)):
            end = _closing(found[3]) if found[3].startswith("(") else found[3].index(" ")
            shape, tail = found[3][:end], found[3][end:].lstrip()
            code, tail = tail.split("(", 1)
            inside = _closing("(" + tail) - 2
            called = re.findall(r"(?:calls|to_apply|body|condition)=%([^\s,]+)", tail)
            if branches := re.search(r"branch_computations=\{([^}]*)\}", tail):
                called += NAME.findall(branches[1])
            op = Op(found[2], shape, code, tuple(NAME.findall(tail[:inside])), tuple(called), tail)
            ops[here][op.name] = op
            if found[1]:
                roots[here] = op
    return Program(ops, roots, entry)


def is_float(shape: str) -> bool:
    return bool(re.match(r"\(?(f|bf)\d", shape))


def sums(text: str, shape: tuple[int, int]) -> Sources:
    """Sources of every int32 array of this shape that a loop carries on from turn to turn (those
    of `enforce` apart) or that is a result of the program."""
    program = parse(text)
    wanted = f"s32[{shape[0]},{shape[1]}]"
    found = Sources(set(), set())
    bodies = [re.search(r"body=%([^\s,]+)", op.rest)[1] for ops in program.ops.values()
              for op in ops.values() if op.code == "while" and not op.enforced]
    for name in {program.entry, *bodies}:
        root = program.roots[name]
        elements = (root.operands if root.code == "tuple" else [root.name])
        for element in elements:
            op = program.ops[name][element]
            if op.shape.startswith(wanted):
                _walk(program, [(name, None)], op, None, found, set())
    return found


def _walk(program: Program, stack: list, op: Op, element: int | None, found: Sources, seen: set):
    """stack: (computation, the operation that called it), innermost last; element: which one of a
    tuple is asked for."""
    here, caller = stack[-1]
    key = tuple(name for name, _ in stack), op.name, element
    if key in seen:
        return
    seen.add(key)

    def further(name, element=None):
        operand = program.ops[here][name]
        if is_float(operand.shape) and not is_float(op.shape):
            found.from_floats.add(op.code)
        elif not is_float(operand.shape):
            _walk(program, stack, operand, element, found, seen)

    if op.enforced:
        carried = re.sub(r"/\*.*?\*/", "", op.shape)
        assert not re.search(r"\b(f|bf)\d", carried), f"{op.name} carries floats: {carried}"
        found.enforced.add(op.name)
    elif op.code == "parameter":
        if caller is not None:
            _walk_operand(program, stack, caller, op.number, element, found, seen)
    elif op.code == "get-tuple-element":
        further(op.operands[0], op.index)
    elif op.code == "tuple" and element is not None:
        further(op.operands[element])
    elif op.code in ("fusion", "call"):
        _enter(program, stack, op, op.called[0], element, found, seen)
    elif op.code == "conditional":
        further(op.operands[0])
        for branch in op.called:
            _enter(program, stack, op, branch, element, found, seen)
    else:  # a loop that bisects, a sum, a slice: of all operands, and of what the loop does
        for name in op.operands:
            further(name)
        if op.code == "while":
            for called in op.called:
                inner = program.roots[called]
                _walk(program, [*stack, (called, None)], inner, None, found, seen)


def _enter(program, stack, op, called, element, found, seen):
    root = program.roots[called]
    if is_float(root.shape):
        found.from_floats.add(op.code)
        return
    _walk(program, [*stack, (called, op)], root, element, found, seen)


def _walk_operand(program, stack, caller, number, element, found, seen):
    """Follow the argument of a caller for its parameter: branches of a conditional get one each."""
    outer = stack[:-1]
    at = number
    if caller.code == "conditional":
        at = 1 + caller.called.index(stack[-1][0])
    operand = program.ops[outer[-1][0]][caller.operands[at]]
    if is_float(operand.shape):
        found.from_floats.add(caller.code)
    else:
        _walk(program, outer, operand, element, found, seen)
