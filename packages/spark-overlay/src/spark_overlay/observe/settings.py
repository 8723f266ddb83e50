"""The settings of observation, apart from the drafter's: an arm whose engine drafts by itself is observed as well.

Owns names, defaults, checks and the sentences of the errors.  Must never repeat a key.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from ofl.contract.observation_v1 import parse_key
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from spark_overlay.settings import SettingsError, setting_sentence, unknown_setting

OBSERVE = "VLLM_DSPARK_OBSERVE"
"""The folder; unset or empty: nothing is observed, and nothing of this package is imported."""


def _folder(path: Path) -> Path:
    if not path.is_dir():
        raise ValueError(f"{path} is not a folder")
    return path


def _key(text: str) -> str:
    try:
        parse_key(text)
    except ValueError as error:
        raise ValueError(str(error)) from None
    return text


def _plan(path: Path | None) -> Path | None:
    if path is not None and not path.absolute().parent.is_dir():
        raise ValueError(f"{path.absolute().parent} is not a folder")
    return path


class ObserveSettings(BaseModel):
    """What the harness asked for.  Build it with `from_environ`."""

    # An error of this model must not quote what was given: it may be the key.
    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True, hide_input_in_errors=True)

    folder: Annotated[Path, AfterValidator(_folder)] = Field(
        alias="VLLM_DSPARK_OBSERVE",
        description="an existing folder for a file of observations per rank and start; unset or empty: nothing is "
        "observed",
    )
    key: Annotated[str, AfterValidator(_key)] = Field(
        alias="VLLM_DSPARK_OBSERVE_KEY",
        description="the run's blinding key, 64 hex digits; drawn for one run and never stored",
        repr=False,
    )
    arm: str = Field(
        default="",
        alias="VLLM_DSPARK_OBSERVE_ARM",
        description="what the harness calls this engine's configuration",
    )
    fault_plan: Annotated[Path | None, AfterValidator(_plan)] = Field(
        default=None,
        alias="VLLM_DSPARK_OBSERVE_FAULT_PLAN",
        description="file of faults, JSON lines, read again whenever it changes; unset: no fault seam",
    )

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> "ObserveSettings | None":
        """The settings, or None where `VLLM_DSPARK_OBSERVE` is unset or empty.  Raises SettingsError."""
        given = {
            name: value for name, value in environ.items() if name.upper().startswith(OBSERVE) and value != ""
        }
        if OBSERVE not in given:
            return None
        known = [str(field.alias) for field in cls.model_fields.values()]
        problems = [unknown_setting(name, known) for name in sorted(given) if name not in known]
        settings = None
        try:
            settings = cls.model_validate({name: given[name] for name in known if name in given})
        except ValidationError as error:
            problems += [setting_sentence(found) for found in error.errors()]
        if problems or settings is None:
            raise SettingsError(problems)
        return settings

    @property
    def key_bytes(self) -> bytes:
        """The blinding key."""
        return parse_key(self.key)
