"""The command line that starts an engine's container, from the same config and site as the engine itself.

Owns the flags: a root that nobody writes to, what is read mounted read-only at its own path, the host's network and
RDMA devices.  Inside, `spark-overlay launch` renders the same config again, so nothing has to be said twice.
"""

import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

from spark_overlay.launching.formats import continued, lines_of
from spark_overlay.launching.layers import Launch
from spark_overlay.launching.problems import ConfigError
from spark_overlay.launching.render import Rendering

ENTRYPOINT = "-c 'from spark_overlay.cli import main; main()' launch"
"""For an image that has Python and not our command."""
CACHE = "/cache"
"""Where compiled kernels go inside; a read-only root has no other place for them."""
NAME = re.compile(r"\$[A-Za-z_][A-Za-z0-9_]*|\$\{[A-Za-z_][A-Za-z0-9_]*\}")


def container(
    launch: Launch, rendering: Rendering, arguments: Sequence[str], extra: Sequence[str] = ()
) -> str:
    """The command line.  arguments: of `launch` inside, without the command.  extra: options for the engine.

    Raises ConfigError where a path that has to be mounted is not absolute.
    """
    site = launch.site.container
    first = [f"{site.runtime} run --rm --init", f"--name {shlex.quote(site.name)}", "--read-only"]
    limits = [
        "--network host",
        "--security-opt no-new-privileges",
        "--ulimit memlock=-1:-1",
        f"--shm-size {site.shm_size}",
        "--tmpfs /tmp:rw,exec,mode=1777",
    ]
    image = site.image if NAME.fullmatch(site.image) else shlex.quote(site.image)
    inside = [f'"{image}"' if image.startswith("$") else image]
    inside += [ENTRYPOINT] if site.packages else []
    inside += lines_of(tuple(arguments))
    if extra:
        inside.append(f"-- {shlex.join(extra)}")
    return continued(first[0], first[1:], limits, _devices(launch), _mounts(launch), inside) + "\n"


def _devices(launch: Launch) -> list[str]:
    site = launch.site.container
    if site.runtime == "docker":
        one = site.gpus if site.gpus == "all" else f"device={site.gpus}"
        found = [f"--gpus {shlex.quote(_csv(one))}"]
    else:  # podman names GPUs as the container device interface does
        found = [f"--device {shlex.quote(f'nvidia.com/gpu={name}')}" for name in site.gpus.split(",")]
    if len(launch.site.hosts) > 1 or any(text.startswith("rdma://") for text in _endpoints(launch)):
        found.append("--device /dev/infiniband")
    return found


def _csv(text: str) -> str:
    """Docker reads the option as a line of CSV: a comma inside needs quotes of its own."""
    return f'"{text}"' if "," in text else text


def _endpoints(launch: Launch) -> Iterator[str]:
    if launch.parts.remote is not None:
        yield launch.site.worker or ""
    yield from str((launch.parts.tables or {}).get("servers", "")).split(",")


def _mounts(launch: Launch) -> list[str]:
    read = {name: field for field, name in _read(launch) if name}
    written = {str(PurePosixPath(path).parent): field for field, path in _written(launch)}
    for name, field in [*read.items(), *written.items()]:
        if not PurePosixPath(name).is_absolute():
            raise ConfigError(
                [launch.problem(f"an absolute path is needed to mount it, not {name!r}", field)]
            )
    cache = launch.site.container.cache
    kept = f"--mount type=bind,source={shlex.quote(cache)},target={CACHE}" if cache else ""
    return [
        *(f"--mount {shlex.quote(f'type=bind,source={name},target={name},readonly')}" for name in read),
        *(f"--mount {shlex.quote(f'type=bind,source={name},target={name}')}" for name in written),
        kept or f"--tmpfs {CACHE}:rw,exec,mode=1777",
        f"--env HOME={CACHE}",
        *_packages(launch.site.container.packages),
    ]


def _packages(folder: str | None) -> list[str]:
    """Ours from a folder, where the image does not have them."""
    if folder is None:
        return []
    return [
        f"--mount {shlex.quote(f'type=bind,source={folder},target={folder},readonly')}",
        f"--env {shlex.quote(f'PYTHONPATH={folder}')}",
        "--entrypoint python3",
    ]


def _read(launch: Launch) -> Iterator[tuple[str, str]]:
    """Field and path of what the engine reads."""
    for path in launch.files:
        yield "", str(path.absolute())
    site, tables, remote = launch.site, launch.parts.tables or {}, launch.parts.remote or {}
    if "/" in (site.target or "") and (site.target or "").startswith(("/", ".")):
        yield "target", str(site.target)
    yield "drafter", site.drafter or ""
    if launch.parts.remote is not None:
        yield "identity_file", site.identity_file or ""
        yield "remote.key_file", str(remote.get("key_file", ""))
    yield "tables.tables", str(tables.get("tables", ""))
    yield "tables.key_file", str(tables.get("key_file", ""))


def _written(launch: Launch) -> Iterator[tuple[str, str]]:
    """Field and path of what is replaced as a whole while it runs, from either side: their folders are mounted."""
    for key in ("stats_file", "control_file"):
        path = (launch.parts.remote or {}).get(key)
        if path:
            yield f"remote.{key}", str(path)


def arguments_inside(config: str, site: Path | None, settings: Sequence[str], rank: int | None) -> list[str]:
    """The options of `launch` inside, the same as outside but for what is of the container itself."""
    found = ["--config", config]
    found += ["--site", str(site)] if site is not None else []
    kept = [setting for setting in settings if not setting.startswith("container.")]
    found += [word for setting in kept for word in ("--set", setting)]
    return [*found, *(["--rank", str(rank)] if rank is not None else [])]
