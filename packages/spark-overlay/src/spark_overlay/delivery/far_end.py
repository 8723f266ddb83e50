"""What a host's shell is asked to do with stages: a few small scripts, and what their exit statuses mean.

Owns the layout at the far end, below the folder that a destination names:

    stages/<sha256>/   one stage, whole and verified; its `stage.sha256` lists its files, and <sha256> is that list's
    current            a link to one of them, replaced by one rename
    history            names of stages in the order in which they became current, the newest last

Needs a POSIX shell and coreutils or BusyBox (sha256sum, mv -T, readlink), and tar where something is copied; no Python.
Must never leave a stage in its place that was not verified there, nor touch what it has not made.
"""

import shlex
from enum import IntEnum

VERIFYING = r"""
LC_ALL=C; export LC_ALL; umask 022
walk() {
  for f in "$1"/* "$1"/.[!.]* "$1"/..?*; do
    if [ -L "$f" ]; then echo "$f"; elif [ -d "$f" ]; then walk "$f"; elif [ -e "$f" ]; then echo "$f"; fi
  done
}
wrong_in() {
  (cd "$1" && sha256sum -c stage.sha256 2>/dev/null) | while IFS= read -r line; do
    name=${line%: *}
    case $line in
      (*": OK") ;;
      (*) if [ -e "$1/$name" ]; then echo "$name differs"; else echo "$name is missing"; fi ;;
    esac
  done
  sums=$(cat "$1/stage.sha256"); end='
'
  (cd "$1" && walk .) | while IFS= read -r f; do
    f=${f#./}
    if [ -L "$1/$f" ]; then echo "$f is a link"; continue; fi
    [ "$f" = stage.sha256 ] && continue
    case "$sums$end" in
      (*"  $f$end"*) ;;
      (*) echo "$f does not belong to it" ;;
    esac
  done
}
verify() {
  [ -r "$1/stage.sha256" ] || { echo "stage.sha256 is missing"; return 1; }
  got=$(sha256sum < "$1/stage.sha256")
  [ "${got%% *}" = "$2" ] || { echo "stage.sha256 differs"; return 1; }
  wrong=$(wrong_in "$1")
  [ -z "$wrong" ] || { echo "$wrong"; return 1; }
}
"""
"""verify FOLDER NAME: true where a folder is the stage of that name; else a line for each file that is wrong."""
PUT = (
    VERIFYING
    + r"""
mkdir -p -- "$1/stages" && cd -- "$1/stages" || exit 41
for old in .incoming-*; do
  [ -d "$old" ] && { kill -0 "${old##*-}" 2>/dev/null || rm -rf "$old"; }
done
new=.incoming-$2-$$
trap 'rm -rf "$new" ".old-$$"' EXIT
trap 'exit 42' HUP INT TERM PIPE
mkdir "$new" || exit 41
tar -xf - -C "$new" || exit 42
verify "$new" "$2" || exit 43
if [ -e "$2" ] || [ -L "$2" ]; then mv "$2" ".old-$$" || exit 42; fi
mv "$new" "$2" || exit 42
"""
)
"""FOLDER NAME, an archive on stdin: verified before it is in its place; a damaged stage of that name is replaced."""
VERIFY = (
    VERIFYING
    + r"""
cd -- "$1" 2>/dev/null && [ -d "stages/$2" ] || exit 40
verify "stages/$2" "$2" || exit 43
"""
)
"""FOLDER NAME."""
STATE = r"""
cd -- "$1" 2>/dev/null || exit 0
[ ! -L current ] || echo "current $(readlink current)"
[ ! -f history ] || while read -r one; do echo "past $one"; done < history
"""
"""FOLDER: prints what `current` leads to, where there is one, and the names in `history`."""
SWITCH = r"""
cd -- "$1" || exit 41
name=$2; shift 2
[ -d "stages/$name" ] || exit 40
if [ $# -gt 0 ]; then
  printf '%s\n' "$@" > ".history-$$" && mv -f ".history-$$" history || { rm -f ".history-$$"; exit 44; }
fi
ln -s "stages/$name" ".current-$$" && mv -fT ".current-$$" current || { rm -f ".current-$$"; exit 44; }
[ $# -gt 0 ] || exit 0
for old in stages/*; do
  one=${old#stages/}
  case $one in (*[!0-9a-f]*) continue ;; esac
  [ ${#one} -eq 64 ] || continue
  case " $* " in (*" $one "*) ;; (*) rm -rf "$old" ;; esac
done
exit 0
"""
"""FOLDER NAME HISTORY…: make a stage current; with a history, write it and take away stages that are not in it."""


class FarStatus(IntEnum):
    """Exit statuses of the scripts; others are the remote shell's own."""

    OK = 0
    NO_STAGE = 40
    NO_FOLDER = 41
    NOT_COPIED = 42
    DIFFERS = 43
    NOT_SWITCHED = 44


def command(script: str, *arguments: str) -> str:
    """A script as one line that any POSIX shell takes, its arguments quoted."""
    return shlex.join(["sh", "-c", script, "spark-overlay", *arguments])
