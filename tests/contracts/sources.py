"""Python sources read as syntax trees: modules, their imports, classes with what they inherit.

Knows nothing of vLLM or of the seam, and imports nothing of what it reads.
"""

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

Function = ast.FunctionDef | ast.AsyncFunctionDef


class Sources:
    """Modules below some folders, the first folder that has one first."""

    def __init__(self, *folders: Path) -> None:
        self.folders = folders
        self._modules: dict[str, Module | None] = {}
        self._classes: dict[tuple[str, str], Class | None] = {}

    def module(self, name: str) -> "Module":
        """A module by its dotted name; raises LookupError where no folder has it."""
        found = self.find(name)
        if found is None:
            raise LookupError(f"there is no module {name} below {', '.join(map(str, self.folders))}")
        return found

    def find(self, name: str) -> "Module | None":
        """As `module`, None where there is none."""
        if name not in self._modules:
            self._modules[name] = self._read(name)
        return self._modules[name]

    def class_of(self, module: str, name: str) -> "Class":
        """A class by where it is defined or imported; raises LookupError."""
        found = self._class(module, name)
        if found is None:
            raise LookupError(f"there is no class {name} in {module}")
        return found

    def names(self, package: str) -> Iterator[str]:
        """Dotted names of the modules below a package."""
        found = {
            path.relative_to(folder).with_suffix("").parts
            for folder in self.folders
            for path in Path(folder, *package.split(".")).rglob("*.py")
        }
        for parts in sorted(found):
            yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    def _read(self, name: str) -> "Module | None":
        for folder in self.folders:
            base = Path(folder, *name.split("."))
            for path in (base.with_suffix(".py"), base / "__init__.py"):
                if path.is_file():
                    return _module(name, path)
        return None

    def _class(self, module: str, name: str) -> "Class | None":
        if (module, name) not in self._classes:
            self._classes[module, name] = self._look_up(module, name)
        return self._classes[module, name]

    def _look_up(self, module: str, name: str) -> "Class | None":
        found = self.find(module)
        if found is None:
            return None
        for node in found.tree.body:
            if isinstance(node, ast.ClassDef) and node.name == name:
                return Class(self, found, node)
        origin = found.imports.get(name)
        return self._class(*origin) if origin else None


@dataclass(frozen=True)
class Module:
    """One file.  name: dotted."""

    name: str
    path: Path
    tree: ast.Module

    @cached_property
    def imports(self) -> dict[str, tuple[str, str]]:
        """What `from module import name` brings, wherever in the file: local name -> (module, name)."""
        return {
            alias.asname or alias.name: (node.module, alias.name)
            for node in ast.walk(self.tree)
            if isinstance(node, ast.ImportFrom) and node.module
            for alias in node.names
        }

    def function(self, name: str) -> Function:
        """A function of the module itself; raises LookupError."""
        return _function(self.tree.body, name, self.name)

    def constant(self, name: str) -> ast.expr:
        """What is assigned to a name at the module's level; raises LookupError."""
        for node in self.tree.body:
            if isinstance(node, ast.Assign | ast.AnnAssign) and name in map(ast.unparse, targets(node)):
                assert node.value is not None
                return node.value
        raise LookupError(f"{self.name} gives {name} no value")


@dataclass(frozen=True)
class Class:
    """A class and, where their sources are there too, the classes that it is made from."""

    sources: Sources
    module: Module
    node: ast.ClassDef

    @cached_property
    def line(self) -> Sequence["Class"]:
        """The class and its bases, depth first; bases without sources (torch's, abc's) are left out."""
        found = [self]
        for base in self.node.bases:
            if isinstance(base, ast.Name):
                parent = self.sources._class(self.module.name, base.id)
                found.extend(one for one in (parent.line if parent else ()) if one not in found)
        return found

    def method(self, name: str) -> Function:
        """The first method of that name along the line; raises LookupError."""
        for one in self.line:
            for node in one.node.body:
                if isinstance(node, Function) and node.name == name:
                    return node
        raise LookupError(f"{self.node.name} has no method {name}")

    def has(self, attribute: str) -> bool:
        """Whether instances have it: a method, a value or an annotated field of the class, or set on self."""
        return attribute in self.attributes

    @cached_property
    def attributes(self) -> frozenset[str]:
        """See `has`."""
        return frozenset(name for one in self.line for name in _own_attributes(one.node))


def parameters(function: Function) -> tuple[str, ...]:
    """Names of the parameters after self that may be passed by position, then of those by name alone."""
    arguments = function.args
    names = [one.arg for one in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
    return tuple(names[1:] if names[:1] == ["self"] else names)


def calls(tree: ast.AST, function: str) -> list[ast.Call]:
    """Calls of what unparses to `function`, in the order of the text."""
    last = function.rpartition(".")[2]
    found = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and last == getattr(node.func, "attr", getattr(node.func, "id", None))
        and ast.unparse(node.func) == function
    ]
    return sorted(found, key=lambda node: (node.lineno, node.col_offset))


def targets(node: ast.AST) -> list[ast.expr]:
    """What an assignment assigns to, tuples taken apart."""
    if isinstance(node, ast.Assign):
        found = node.targets
    elif isinstance(node, ast.AnnAssign | ast.AugAssign):
        found = [node.target]
    else:
        return []
    return [part for one in found for part in (one.elts if isinstance(one, ast.Tuple) else [one])]


@cache
def _module(name: str, path: Path) -> Module:
    """Sources do not change while they are read."""
    return Module(name, path, ast.parse(path.read_text(encoding="utf-8")))


def _function(body: Sequence[ast.stmt], name: str, where: str) -> Function:
    for node in body:
        if isinstance(node, Function) and node.name == name:
            return node
    raise LookupError(f"{where} has no function {name}")


def _own_attributes(node: ast.ClassDef) -> Iterator[str]:
    for statement in node.body:
        if isinstance(statement, Function):
            yield statement.name
            yield from _set_on_self(statement)
        else:
            yield from (one.id for one in targets(statement) if isinstance(one, ast.Name))


def _set_on_self(function: Function) -> Iterator[str]:
    for node in ast.walk(function):
        for one in targets(node):
            if isinstance(one, ast.Attribute) and ast.unparse(one.value) == "self":
                yield one.attr
