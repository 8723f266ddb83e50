"""Finds and loads the C library that lies inside one of our packages.  Used by ofl and by what is built on it.

Knows nothing of what a library does.  Standard library only.
"""

import ctypes
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from ofl.abi import TEXT_BYTES

Signatures = Mapping[str, tuple[Any, Any]]
"""Function -> (result type, argument types)."""


def library_path(name: str, folders: Iterable[str], variable: str) -> Path:
    """Where a library is: what the environment variable says, else in the first of a package's folders that holds it.

    An editable install keeps the library apart from the sources, so every folder of the package counts.
    Raises ImportError naming the folders.
    """
    if override := os.environ.get(variable):
        return Path(override)
    folders = list(folders)
    for folder in folders:
        if (candidate := Path(folder, name)).is_file():
            return candidate
    raise ImportError(f"{name} is in none of: {', '.join(folders)} (set {variable}, or install the package)")


def load(path: Path, version_function: str, abi_version: int, *signatures: Signatures) -> ctypes.CDLL:
    """The loaded library with its functions declared.

    version_function: says the library's ABI version, as uint32.  Raises ImportError where the library is missing, has
    another ABI version, or lacks a function.
    """
    try:
        library = ctypes.CDLL(str(path))
        version = getattr(library, version_function)
    except (OSError, AttributeError) as error:
        raise ImportError(f"{path} cannot be loaded: {error}") from None
    version.restype = ctypes.c_uint32
    version.argtypes = ()
    if (found := version()) != abi_version:
        raise ImportError(f"{path} has ABI version {found}; this package needs {abi_version}")
    for some in signatures:
        for name, (result, arguments) in some.items():
            function = getattr(library, name, None)
            if function is None:
                raise ImportError(f"{path} has no {name}")
            function.restype = result
            function.argtypes = arguments
    return library


def text_of(function: Callable[..., int]) -> tuple[int, str]:
    """Call a control-path function with room for its sentence; its status and the sentence."""
    text = ctypes.create_string_buffer(TEXT_BYTES)
    status = int(function(text, len(text)))
    return status, text.value.decode("utf-8", "replace")
