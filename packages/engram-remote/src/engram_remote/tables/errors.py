"""What can be wrong with tables on disk; every text is one sentence that names the file or setting and the field."""

from pathlib import Path


class TableError(ValueError):
    """The tables cannot be made, or are not what they should be."""


class ManifestError(TableError):
    """The manifest is not one, or contradicts itself.  file: of the manifest.  field: as in `shards[2].row_end`."""

    def __init__(self, file: Path, field: str, detail: str) -> None:
        super().__init__(f"{file}: {field}: {detail}")
        self.file = file
        self.field = field
        self.detail = detail


class ShardError(TableError):
    """A shard is not what its header and manifest say.  file: of the shard.  field: of header or manifest."""

    def __init__(self, file: Path, field: str, detail: str) -> None:
        super().__init__(f"{file}: {field}: {detail}")
        self.file = file
        self.field = field
        self.detail = detail


class SourceError(TableError):
    """The source of a build is not whole, not an Engram table, or changed meanwhile."""


class BuildError(TableError):
    """The build cannot start or go on."""
