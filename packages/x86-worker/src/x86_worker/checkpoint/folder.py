"""A checkpoint folder: config.json and the safetensors files that vLLM would load from it.

Knows files, not models.  Which tensors matter is for `drafter` and `target` to say.
"""

import hashlib
import json
from pathlib import Path

from ofl.files import FileTooLongError, NotRegularFileError, open_plain, read_plain

from x86_worker.checkpoint.errors import CheckpointError
from x86_worker.checkpoint.safetensors_file import StoredTensor, read_safetensors

INDEX_NAME = "model.safetensors.index.json"
CONFIG_NAME = "config.json"
TOKENIZER_NAME = "tokenizer.json"
JSON_BYTES_MAX = 256 << 20
"""Of a configuration or an index: no checkpoint's is as long."""


def read_json_object(path: Path) -> dict[str, object]:
    """The JSON object in the file; raises CheckpointError naming the file."""
    try:
        value = json.loads(read_plain(path, JSON_BYTES_MAX).decode("utf-8"))
    except NotRegularFileError as error:
        raise CheckpointError(f"{path}: is not a regular file") from error
    except FileTooLongError as error:
        raise CheckpointError(f"{path}: has more than {JSON_BYTES_MAX} bytes") from error
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read ({error.strerror})") from error
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path}: is not JSON ({error})") from error
    if not isinstance(value, dict):
        raise CheckpointError(f"{path}: is not a JSON object")
    return value


def read_config(folder: Path) -> dict[str, object]:
    """The folder's config.json."""
    return read_json_object(folder / CONFIG_NAME)


def read_tensors(folder: Path) -> dict[str, StoredTensor]:
    """Every tensor of the folder by the name in its file.

    As vLLM's loader: with an index, the files that it refers to; without one, every *.safetensors.  Raises
    CheckpointError on a missing file, or on a name that two files hold.
    """
    tensors: dict[str, StoredTensor] = {}
    for path in _weight_files(folder):
        for name, tensor in read_safetensors(path).items():
            if name in tensors:
                raise CheckpointError(f"{path}: tensor {name} is also in {tensors[name].file.name}")
            tensors[name] = tensor
    return tensors


def _weight_files(folder: Path) -> list[Path]:
    index = folder / INDEX_NAME
    if not index.is_file():
        found = sorted(folder.glob("*.safetensors"))
        if not found:
            raise CheckpointError(f"{folder}: holds no *.safetensors file")
        return found
    weight_map = read_json_object(index).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise CheckpointError(f"{index}: weight_map is not an object that names files")
    names = set(weight_map.values())
    for name in names:
        if not isinstance(name, str) or Path(name).name != name:
            raise CheckpointError(f"{index}: weight_map names {name!r}, which is not a file of the folder")
        if not (folder / name).is_file():
            raise CheckpointError(f"{index}: weight_map names {name}, which is missing")
    return sorted(folder / name for name in names)


def tokenizer_sha256(folder: Path) -> str | None:
    """Hex digest of the folder's tokenizer.json; None where there is none."""
    path = folder / TOKENIZER_NAME
    if not path.is_file():
        return None
    with open_plain(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
