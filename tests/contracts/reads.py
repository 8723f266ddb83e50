"""What code reads of objects whose class is known: of the engine's speculator, and the seam of vLLM's objects.

Pure functions from syntax trees to lists of reads.
"""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from sources import Function, targets


@dataclass(frozen=True)
class Read:
    """One read of an attribute.  owner: what it is read of, a name of a class or the text of the expression.

    guards: conditions that hold where it stands, innermost last.  tolerant: by `getattr` with a default.
    """

    owner: str
    name: str
    line: int
    guards: tuple[str, ...] = ()
    tolerant: bool = False


def speculator_reads(function: Function, root: str = "self.speculator") -> list[Read]:
    """Reads of the speculator in one method of a model runner, with what has been asked before them."""
    aliases = {root} | {
        target.id
        for node in ast.walk(function)
        if isinstance(node, ast.Assign) and _is_speculator(node.value, root)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    return list(_guarded(function.body, (), aliases, root))


def _is_speculator(node: ast.expr, root: str) -> bool:
    if ast.unparse(node) == root:
        return True
    asked = _asked_for(node)
    return asked is not None and f"{asked[0]}.{asked[1]}" == root


def _guarded(body: list[ast.stmt], guards: tuple[str, ...], aliases: set[str], root: str) -> Iterator[Read]:
    for statement in body:
        if isinstance(statement, ast.If):
            yield from _in_expression(statement.test, guards, aliases)
            yield from _guarded(statement.body, (*guards, *_conditions(statement.test)), aliases, root)
            otherwise = (*guards, f"not ({ast.unparse(statement.test)})")
            yield from _guarded(statement.orelse, otherwise, aliases, root)
            if statement.body and isinstance(statement.body[-1], ast.Return | ast.Raise | ast.Continue):
                guards = (*guards, *_opposite(statement.test))
            continue
        for child in ast.iter_child_nodes(statement):
            if isinstance(child, ast.expr | ast.withitem):
                yield from _in_expression(child, guards, aliases)
        for name in ("body", "orelse", "finalbody"):
            inner = getattr(statement, name, None)
            if isinstance(inner, list):
                yield from _guarded(inner, guards, aliases, root)
        for handler in getattr(statement, "handlers", ()):
            yield from _guarded(handler.body, guards, aliases, root)


def _in_expression(node: ast.AST, guards: tuple[str, ...], aliases: set[str]) -> Iterator[Read]:
    if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.And):
        for value in node.values:
            yield from _in_expression(value, guards, aliases)
            guards = (*guards, *_conditions(value))
        return
    if isinstance(node, ast.expr) and (asked := _asked_for(node)) and asked[0] in aliases:
        assert isinstance(node, ast.Call)
        yield Read(asked[0], asked[1], node.lineno, guards, tolerant=len(node.args) > 2)
    elif (
        isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Load)
        and ast.unparse(node.value) in aliases
    ):
        yield Read(ast.unparse(node.value), node.attr, node.lineno, guards)
    for child in ast.iter_child_nodes(node):
        yield from _in_expression(child, guards, aliases)


def _asked_for(node: ast.expr) -> tuple[str, str] | None:
    """Of `getattr(owner, "name"[, default])`: owner and name."""
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "getattr" and len(node.args) >= 2:
        name = node.args[1]
        if isinstance(name, ast.Constant) and isinstance(name.value, str):
            return ast.unparse(node.args[0]), name.value
    return None


def _conditions(test: ast.expr) -> tuple[str, ...]:
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        return tuple(ast.unparse(value) for value in test.values)
    return (ast.unparse(test),)


def _opposite(test: ast.expr) -> tuple[str, ...]:
    """What holds after `if test: return`."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return (ast.unparse(test.operand),)
    return (f"not ({ast.unparse(test)})",)


Children = Mapping[tuple[str, str], str]
"""(class, attribute) -> the class of what it holds."""


def typed_reads(function: Function, known: Mapping[str, str], children: Children) -> list[Read]:
    """Reads of attributes of objects whose class is known from a name, and of what they hold.

    known: by name of a variable or parameter, whatever it is assigned.  Any other name is of the class that was last
    assigned to it.
    """
    kinds: dict[str, str] = {}
    for node in sorted(ast.walk(function), key=lambda node: getattr(node, "lineno", 0)):
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            kinds.update(known)
            _assign(node, kinds, children)
    kinds.update(known)
    found = []
    for node in ast.walk(function):
        if isinstance(node, ast.Attribute) and (owner := _kind(node.value, kinds, children)):
            found.append(Read(owner, node.attr, node.lineno))
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "getattr" and len(node.args) == 3:
            owner = _kind(node.args[0], kinds, children)
            if owner and isinstance(node.args[1], ast.Constant):
                found.append(Read(owner, str(node.args[1].value), node.lineno, tolerant=True))
    return found


def _assign(node: ast.Assign, kinds: dict[str, str], children: Children) -> None:
    names = targets(node)
    values = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
    if len(names) != len(values):
        return
    for target, kind in [
        (one, _kind(value, kinds, children)) for one, value in zip(names, values, strict=True)
    ]:
        if isinstance(target, ast.Name):
            kinds.pop(target.id, None)
            if kind:
                kinds[target.id] = kind


def _kind(node: ast.expr, kinds: Mapping[str, str], children: Children) -> str | None:
    if isinstance(node, ast.Name):
        return kinds.get(node.id)
    if isinstance(node, ast.Attribute) and (owner := _kind(node.value, kinds, children)):
        return children.get((owner, node.attr))
    return None
