"""What a launch config and a site may say: the typed, frozen models that the published schemas are made from.

Owns fields, defaults and meanings.  A config is an experiment and holds nothing of a host; a site is where it runs.
Both may set the engine's parts (`Parts`), and the site's come last.  Must never look at a file.
"""

import re
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal

from ofl.contract.identity import parse_digest
from ofl.endpoint import parse_endpoint
from ofl.errors import EndpointError
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, JsonValue

from spark_overlay.launching.names import REMOTE_KEYS, TABLE_KEYS

Scalar = bool | int | float | str
Argument = bool | int | float | str | list[str] | dict[str, JsonValue]
NODES_MAX = 64
HOST = re.compile(r"[A-Za-z0-9._:%-]+")
SIZE = re.compile(r"[1-9][0-9]*[kmgKMG]")


def _no_switch(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError(f"a number is needed, not {value!r}")
    return value


def _words(value: object) -> object:
    """A list may be given as one comma text, as --set gives it."""
    if isinstance(value, str) and value.lstrip().startswith("["):
        raise ValueError(f"words with commas between are needed, not {value!r}")
    return [word for word in value.split(",") if word] if isinstance(value, str) else value


def _digest(text: str) -> str:
    try:
        parse_digest(text, "")
    except ValueError:
        raise ValueError(f"64 lower-case hex digits are needed, not {text!r}") from None
    return text


def _endpoint(text: str) -> str:
    try:
        endpoint = parse_endpoint(text)
    except EndpointError as error:
        raise ValueError(str(error)) from None
    if not endpoint.connectable:
        raise ValueError(f"endpoint {text!r}: port 0 can be listened on but not connected to")
    return text


def _absolute(text: str) -> str:
    if not PurePosixPath(text).is_absolute():
        raise ValueError(f"an absolute path is needed, not {text!r}")
    return text


def _size(text: str) -> str:
    if not SIZE.fullmatch(text):
        raise ValueError(f"a size such as 16g is needed, not {text!r}")
    return text


def _unset(text: str) -> str:
    if not text:
        raise ValueError("it is empty; leave it out instead")
    return text


def _host(text: str) -> str:
    if not HOST.fullmatch(text):
        raise ValueError(f"an address or a host's name is needed, not {text!r}")
    return text


Text = Annotated[str, AfterValidator(_unset)]
AbsolutePath = Annotated[str, AfterValidator(_absolute)]
Port = Annotated[int, BeforeValidator(_no_switch), Field(ge=1, le=65535)]
Digest = Annotated[str, AfterValidator(_digest)]
Words = Annotated[tuple[Text, ...], BeforeValidator(_words)]
Host = Annotated[str, AfterValidator(_unset), AfterValidator(_host)]
Hosts = Annotated[tuple[Host, ...], BeforeValidator(_words)]


def _properties(keys: dict[str, str]) -> dict[str, Any]:
    """Of a mapping with known keys, for its schema."""
    return {
        "properties": {name: {"description": meaning} for name, meaning in keys.items()},
        "additionalProperties": False,
    }


class Parts(BaseModel):
    """What config and site both may set; unset parts set nothing."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    remote: dict[str, Scalar] | None = Field(
        default=None,
        description="draft remotely; settings without `VLLM_DSPARK_REMOTE_`, in lower case "
        "(docs/operations/settings.md)",
        json_schema_extra=_properties(REMOTE_KEYS),
    )
    tables: dict[str, Scalar] | None = Field(
        default=None,
        description="read Engram rows remotely; settings without `VLLM_ENGRAM_REMOTE_`, in lower case, and "
        "`servers`, the list itself (docs/engram/settings.md)",
        json_schema_extra=_properties(TABLE_KEYS),
    )
    speculative: dict[str, JsonValue] | None = Field(
        default=None,
        description="vLLM's speculative configuration, without `model`, which is the site's `drafter`",
    )
    engine: dict[str, Argument] | None = Field(
        default=None,
        description="options of the engine's command without their dashes in front; true: the option alone, "
        "false: with `no-` before it; a list: several values; a table: JSON",
    )
    environment: dict[str, Scalar] | None = Field(
        default=None, description="further variables of the engine's environment; no secrets"
    )


class LaunchConfig(Parts):
    """An experiment: what is set in the same way wherever it runs."""

    description: str = Field(default="", description="one sentence for `spark-overlay configs`")
    extends: Text | None = Field(
        default=None, description="a shipped config's name, or a file beside this one, whose parts come first"
    )
    drafter_weights: bool | None = Field(
        default=None,
        description="whether the drafter's folder on this host needs weights, or config.json alone",
    )


class Container(BaseModel):
    """How the engine's container is started; only `--format container` reads it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    runtime: Literal["docker", "podman"] = Field(default="docker", description="whose flags are rendered")
    image: Text = Field(
        default="$ENGINE_IMAGE", description="the image with vLLM and our wheels; $NAME is left to the shell"
    )
    name: Text = Field(default="spark-engine", description="of the container")
    packages: AbsolutePath | None = Field(
        default=None,
        description="folder with our packages, for an image that does not have them; mounted read-only",
    )
    shm_size: Annotated[str, AfterValidator(_size)] = Field(
        default="16g", description="size of /dev/shm, which ranks on one host exchange through"
    )
    gpus: Text = Field(default="all", description="`all`, or indexes such as `0,1`")
    cache: AbsolutePath | None = Field(
        default=None,
        description="folder that keeps compiled kernels between starts; unset: in memory, compiled anew",
    )


class Site(Parts):
    """Where it runs: the same file on every host of an engine."""

    target: Text | None = Field(
        default=None, description="the target model: a folder, or a name that vLLM knows"
    )
    drafter: Text | None = Field(default=None, description="the drafter's folder on this host")
    worker: Annotated[str, AfterValidator(_endpoint)] | None = Field(
        default=None, description="the worker's endpoint (`VLLM_DSPARK_REMOTE`)"
    )
    identity: Digest | None = Field(default=None, description="the drafter's identity, 64 hex digits")
    markov_identity: Digest | None = Field(default=None, description="of its Markov tensors, 64 hex digits")
    identity_file: AbsolutePath | None = Field(
        default=None, description="`identity.json` of `x86-worker identity`, which both digests are read from"
    )
    tensor_parallel_size: Annotated[int, BeforeValidator(_no_switch), Field(ge=1, le=1024)] = Field(
        default=1, description="ranks of the engine, on all of its hosts together"
    )
    hosts: Annotated[Hosts, Field(max_length=NODES_MAX)] = Field(
        default=(), description="address of each host of one engine, of rank 0's first; none: one host"
    )
    master_port: Port = Field(default=29501, description="port of the first host on which the others find it")
    host: Host = Field(default="127.0.0.1", description="address that the engine's HTTP API listens on")
    port: Port = Field(default=8000, description="port of the HTTP API")
    command: Annotated[Words, Field(min_length=1)] = Field(
        default=("vllm", "serve", "{target}"), description="what starts the engine, before its options"
    )
    vllm_version: Text | None = Field(
        default=None, description="the engine's, where it is not that of this environment"
    )
    container: Container = Field(default=Container(), description="how its container is started")
