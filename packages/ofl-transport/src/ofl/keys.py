"""Key files: makes them, and refuses those that somebody else could have read or changed.

libofl.so reads them itself when a client connects or a server starts, by the same rules and in the same words
(cpp/key_file.cpp).  Nothing here shows or keeps a key.
"""

import contextlib
import errno
import io
import os
import secrets
import shlex
import stat

from ofl.errors import TransportError
from ofl.files import FileTooLongError, NotRegularFileError, open_plain, read_bounded

KEY_BYTES_MIN = 32
KEY_BYTES_MAX = 1024
_KEY_BYTES = 32
"""Of a new key; written as 64 hexadecimal digits, which are what both ends then use."""
_FLAGS = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NOCTTY


class KeyFileError(TransportError, ValueError):
    """A key file that is not used, or not made: one sentence with the file, the rule and the repair."""


def write_key(path: str | os.PathLike[str]) -> None:
    """Make a key file: 64 random hexadecimal digits and a newline, mode 0600; an existing file is never overwritten.

    The file is on its disk on return.  Raises KeyFileError, and then leaves no file behind.
    """
    name = _name_of(path)
    try:
        file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FLAGS, 0o600)
    except OSError as error:
        raise _not_made(name, error) from None
    try:
        try:
            os.fchmod(file, 0o600)  # the umask may have taken rights of the owner
            _write_all(file, secrets.token_hex(_KEY_BYTES).encode() + b"\n")
            os.fsync(file)
        finally:
            os.close(file)
        check_key(name)  # some file systems keep neither modes nor owners
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.unlink(name)
        if isinstance(error, OSError):
            raise _failed(name, "written", error) from None
        raise


def check_key(path: str | os.PathLike[str]) -> None:
    """Raise KeyFileError unless the file may be used as a key by this process.

    It must be a regular file (no link), belong to this user or to root, give no rights to group and others, and hold
    32 to 1024 bytes, one newline at its end not counted.
    """
    name = _name_of(path)
    try:
        file = open_plain(name, follow=False)
    except OSError as error:
        raise _not_opened(name, error) from None
    with file:
        _judge_file(name, os.fstat(file.fileno()))
        _judge_size(name, _size_of(name, file))


def _name_of(path: str | os.PathLike[str]) -> str:
    name = os.fsdecode(path)
    if not name:
        raise KeyFileError("the path of the key file is empty")
    if "\0" in name:
        raise KeyFileError("the path of the key file has a NUL character")
    return name


def _judge_file(name: str, facts: os.stat_result) -> None:
    user = os.geteuid()
    if facts.st_uid not in (user, 0):
        allowed = "user 0" if user == 0 else f"user {user} or to root"
        rule = f"belongs to user {facts.st_uid} and must belong to {allowed}"
        raise _refused(name, rule, f"'chown {user} {_quoted(name)}' as root")
    # An access list that lets anybody else in shows in the bits of the group.
    if facts.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        rule = f"has mode {stat.S_IMODE(facts.st_mode):04o}, which gives rights to other users"
        raise _refused(name, rule, f"'chmod 600 {_quoted(name)}'")


def _size_of(name: str, file: io.BufferedReader) -> int:
    """Bytes of the key; more than KEY_BYTES_MAX stands for any such number."""
    try:
        content = read_bounded(file, KEY_BYTES_MAX + 1)
    except FileTooLongError:
        return KEY_BYTES_MAX + 1
    except OSError as error:
        raise _failed(name, "read", error) from None
    return len(content.removesuffix(b"\n"))


def _judge_size(name: str, size: int) -> None:
    word = _quoted(name)
    repair = f"'mv {word} {_quoted(name + '.old')}', then 'ofl keygen {word}'"
    if size > KEY_BYTES_MAX:
        raise _refused(name, "holds more than the 1024 bytes that a key may have", repair)
    if size < KEY_BYTES_MIN:
        raise _refused(name, f"holds {size} bytes, and a key has at least 32", repair)


def _write_all(file: int, content: bytes) -> None:
    while content:
        content = content[os.write(file, content) :]


def _not_made(name: str, error: OSError) -> KeyFileError:
    word = _quoted(name)
    if error.errno == errno.EEXIST:
        rule = "exists and is never overwritten"
        return _refused(name, rule, f"name another, or 'mv {word} {_quoted(name + '.old')}' first")
    if error.errno == errno.ENOENT:
        return _refused(name, "has no folder", f"'mkdir -p -m 700 {_quoted(os.path.dirname(name) or '.')}'")
    return _failed(name, "made", error)


def _not_opened(name: str, error: OSError) -> KeyFileError:
    word, user = _quoted(name), os.geteuid()
    if error.errno == errno.ENOENT:
        repair = f"'ofl keygen {word}' makes one, or copy the one that the peer has"
        return _refused(name, "does not exist", repair)
    if error.errno == errno.ELOOP:
        rule = "is a symbolic link, which may come to mean another file"
        return _refused(name, rule, f"name the file itself, which 'readlink -f {word}' shows")
    if error.errno == errno.EACCES:
        gives = f"'chown {user} {word}' as root gives it to that user"
        shows = f"'namei -l {word}' shows a closed folder above it"
        return _refused(name, f"cannot be opened by user {user}", f"{gives}, and {shows}")
    if isinstance(error, NotRegularFileError):
        return _refused(name, "is not a regular file", "name one, or make one with 'ofl keygen FILE'")
    return _failed(name, "opened", error)


def _failed(name: str, what: str, error: OSError) -> KeyFileError:
    return KeyFileError(f"key file {name} cannot be {what}: {os.strerror(error.errno or 0)}")


def _refused(name: str, rule: str, repair: str) -> KeyFileError:
    return KeyFileError(f"key file {name} {rule}: {repair}")


def _quoted(name: str) -> str:
    """The path as a word of a shell command."""
    return shlex.quote(f"./{name}" if name.startswith("-") else name)
