"""Reads the digests that an engine is configured with from `identity.json`, as `x86-worker identity` writes it."""

import json
from dataclasses import dataclass
from pathlib import Path

from ofl.contract.identity import parse_digest
from ofl.files import read_plain

from spark_overlay.launching.layers import Launch
from spark_overlay.launching.problems import ConfigError

FILE_BYTES_MAX = 1 << 20


@dataclass(frozen=True)
class Identities:
    """64 hex digits each; None: not given."""

    drafter: str | None
    markov: str | None


def read_identities(launch: Launch) -> Identities:
    """Those of the site's identity file.  Raises ConfigError, also where the site states others beside it."""
    path, site = Path(str(launch.site.identity_file)), launch.site
    try:
        values = json.loads(read_plain(path, FILE_BYTES_MAX))
    except OSError as error:
        raise ConfigError(
            [launch.problem(f"{path} cannot be read: {error.strerror}", "identity_file")]
        ) from None
    except (ValueError, RecursionError):
        values = None
    found = {}
    for name, stated in (("identity", site.identity), ("markov_identity", site.markov_identity)):
        try:
            found[name] = parse_digest(values[name], name).hex()
        except (KeyError, TypeError, ValueError):
            raise ConfigError(
                [
                    launch.problem(
                        f"{path} holds no {name}: it is not what `x86-worker identity` writes",
                        "identity_file",
                    )
                ]
            ) from None
        if stated is not None and stated != found[name]:
            raise ConfigError([launch.problem(f"it is not that of {path}: leave one of the two out", name)])
    return Identities(found["identity"], found["markov_identity"])
