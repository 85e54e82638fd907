"""Rules by which a shell command fails: errexit and pipefail, but a reader may stop early.

Bash alone would end a command with 141 (SIGPIPE) after ``yes | head -1``, which succeeded. So an
ERR trap checks the statuses of the pipeline: if the last is 0, and each of the others is 0 or 141,
the command continues. Bash would end the shell right after the trap, so the trap switches errexit
off. A DEBUG trap puts it back before the next command; until then, ERR acts as errexit would.

Before ``&&`` or in ``if``, bash runs no ERR trap, and has chosen a branch already. The DEBUG trap
finds such a pipeline in PIPESTATUS, and fails the command. DEBUG costs 20 microseconds for each
simple command, so only commands with a pipeline have it.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Mapping
from typing import NamedTuple

_HINT = "add `|| true` if that is meant"
_HINT_CONDITION = (
    "its reader had enough, which bash takes for a failure in a condition: make the pipeline a command of its own, or "
    "add `|| true` if that is meant"
)
_HINT_DEBUG = "in a command with a pipe, tarkit needs the DEBUG trap; use --shell-flags"
_HINT_FILTER = f"only the last command of a filter may end with 1; {_HINT}"

# __tarkit_busy keeps the DEBUG trap from looking at the commands of another trap. A redirection
# sets it, because that comes before the first command; it also hides the trap from set -x. What is
# seldom needed is in variables, so that the traps are short. No text has single quotes, so that
# they can be read in a manifest.
_BUSY = '2>"${__tarkit_busy:=/dev/null}"'

# failed: last, early (any other; the more important one), or nothing. piped: there is a 141 that
# does not count.
_CLASSIFY = """\
__tarkit_piped= __tarkit_failed=
for __tarkit_each in "${!__tarkit_now[@]}"; do
  case ${__tarkit_now[__tarkit_each]},$((${#__tarkit_now[@]} - __tarkit_each)) in
    0,*) ;;
    *,1) __tarkit_failed=${__tarkit_failed:-last};;
    141,*) __tarkit_piped=1;;
    *) __tarkit_failed=early;;
  esac
done
[[ $__tarkit_piped && -z $__tarkit_failed ]]"""

# The pipeline is shown if it is in the command as it was put together, which it is not if parts of
# it are compound.
_DESCRIBE = """\
__tarkit_text=$__tarkit_name __tarkit_codes=
if [[ ${#__tarkit_now[@]} -gt 1 ]]; then
  __tarkit_text=${__tarkit_last[0]}
  for __tarkit_each in "${__tarkit_last[@]:1:${#__tarkit_now[@]} - 1}"; do
    __tarkit_text="$__tarkit_each | $__tarkit_text"
  done
  [[ ${__tarkit_command//[[:space:]]/} == *"${__tarkit_text//[[:space:]]/}"* ]] ||
    __tarkit_text="a pipeline with $__tarkit_name"
  for __tarkit_each in "${__tarkit_now[@]}"; do
    __tarkit_codes="$__tarkit_codes${__tarkit_codes:+ | }$__tarkit_each"
  done
  __tarkit_codes=" (exit codes $__tarkit_codes)"
fi
__tarkit_text=${__tarkit_text//[[:cntrl:]]/ }
__tarkit_said="line $__tarkit_line: ${__tarkit_text:0:300}$__tarkit_codes; $__tarkit_hint\""""

# The innermost shell says why; those around it fail because of it. A subshell that has skipped a
# step ends with 199 instead of 141, which counts in an early part of a pipeline, and in a
# condition, too.
_FAIL = """\
__tarkit_exits=yes
case $__tarkit_code,$__tarkit_hint,$__tarkit_text in
  199,* | 141,"$__tarkit_hint_condition",* | 141,*,*=*\\$\\(* | 141,*,*=*\\`* | 141,*,"a pipeline with "*)
    __tarkit_code=141 __tarkit_skipped=199;;
esac
if [[ -z $__tarkit_folder ]]; then
  printf "tarkit: exit code %s: %s\\n" "$__tarkit_code" "$__tarkit_said" >&2
else
  __tarkit_why=$__tarkit_scratch/$__tarkit_folder.why
  if [[ ! -e $__tarkit_why ]] || [[ -f $__tarkit_why && $(<"$__tarkit_why") != "$__tarkit_code "* ]]; then
    printf "%s %s" "$__tarkit_code" "$__tarkit_said" >"$__tarkit_why"
  fi
fi
[[ $BASH_SUBSHELL -eq $__tarkit_level ]] || __tarkit_code=${__tarkit_skipped:-$__tarkit_code}
exit "$__tarkit_code\""""

_CHECK = """\
if [[ -z $__tarkit_exits && $-$__tarkit_inherited == *e* ]] &&
  { [[ "${__tarkit_now[*]}" == 141 || "${__tarkit_now[*]}" == *199* ]] || eval "$__tarkit_classify"; }; then
  __tarkit_code=141 __tarkit_name=${__tarkit_last[0]} __tarkit_line=$__tarkit_at
  [[ ${#__tarkit_now[@]} -gt 1 ]] || __tarkit_name="a subshell${__tarkit_name:+ or $__tarkit_name}"
  __tarkit_hint=$__tarkit_hint_condition
  eval "$__tarkit_describe"
  false
fi"""

# PIPESTATUS is that of an earlier command where [[, (( or a redirection of a compound command has
# failed, and behind a loop, the status of which is that of its body. A 141 of a body has been
# looked at before.
_LATEST = """\
printf -v __tarkit_text " %s " "${__tarkit_now[@]}"
[[ $__tarkit_code == 0 || $__tarkit_text == *" $__tarkit_code "* ]] || {
  [[ $__tarkit_code != 141 ]] || __tarkit_pending=${__tarkit_pending:-pipe}
  __tarkit_now=("$__tarkit_code")
}"""

# After the pipeline, the subshell or function that it ends has the status 141, too. In $(), errexit
# is off. Behind "!" and "&&" the only ERR trap that runs is that of the eval which has the whole
# command.
_ERR = f"""\
{{ __tarkit_code=$? __tarkit_now=("${{PIPESTATUS[@]}}") __tarkit_line=$LINENO __tarkit_name=$BASH_COMMAND
  [[ $__tarkit_name != *__tarkit_command* ]] || __tarkit_name=$__tarkit_command
  if [[ $-$__tarkit_inherited == *e* || $__tarkit_pending ]]; then
    eval "$__tarkit_latest"
    if eval "$__tarkit_classify"; then
      __tarkit_pending=pipe __tarkit_stale="${{__tarkit_now[*]}}" __tarkit_in="$BASHPID ${{FUNCNAME-}}"
      set +e
    elif [[ $__tarkit_code == 141 && $__tarkit_pending == pipe ]]; then
      __tarkit_stale="${{__tarkit_now[*]}}" __tarkit_in="$BASHPID ${{FUNCNAME-}}"
      set +e
    elif [[ $- != *e* && $__tarkit_inherited ]]; then
      :
    elif [[ $__tarkit_filter && $__tarkit_code == 1 && $__tarkit_failed == last ]]; then
      __tarkit_pending=one __tarkit_hint=$__tarkit_hint_filter
      set +e
      eval "$__tarkit_describe"
    else
      [[ -z $__tarkit_filter || $__tarkit_code != 1 ]] || __tarkit_code=125
      __tarkit_hint=$__tarkit_hint_other
      eval "$__tarkit_describe"
      false
    fi
  fi
}} {_BUSY} || eval "$__tarkit_fail"
__tarkit_busy="""

# PIPESTATUS still has the statuses of the pipeline that ERR accepted while for, case and return
# run, and while the next pipeline is put together: it is stale where the command is a later part of
# one, or begins a subshell or a function.
_STALE = """\
__tarkit_text=${__tarkit_command//[[:space:]]/} __tarkit_name=${BASH_COMMAND%%[<>]*}
__tarkit_name=${__tarkit_name%[0-9]}
[[ "$BASHPID ${FUNCNAME-}" != "$__tarkit_in" || ${__tarkit_text//||/;} == *"|${__tarkit_name//[[:space:]]/}"* ]]"""

# The command after such a condition looks at its status, or says that it does not matter.
_ANSWERED = """\
case $BASH_COMMAND in
  *\\$\\?* | *PIPESTATUS*) ;;
  true | :) [[ ${__tarkit_command//[[:space:]]/} == *"||$BASH_COMMAND"* ]];;
  *) false;;
esac"""

_DEBUG = """\
{ __tarkit_seen=("${PIPESTATUS[@]}") __tarkit_here=$LINENO
  if [[ -z $__tarkit_busy ]]; then
    __tarkit_now=("${__tarkit_seen[@]}")
    if [[ $BASHPID != "$__tarkit_shell" ]]; then
      __tarkit_shell=$BASHPID
      [[ $- == *e* ]] || __tarkit_inherited=$__tarkit_e$__tarkit_inherited
      [[ $BASH_SUBSHELL -eq $__tarkit_level ]] || trap "$__tarkit_end" EXIT
    fi
    [[ "${__tarkit_now[*]}" == "$__tarkit_stale" ]] || __tarkit_stale=
    case $__tarkit_pending,$BASH_COMMAND in
      *,"trap "*DEBUG*) __tarkit_code=125 __tarkit_now=(125) __tarkit_name=$BASH_COMMAND __tarkit_line=$__tarkit_here
        __tarkit_hint=$__tarkit_hint_debug
        eval "$__tarkit_describe"
        false;;
      pipe,exit*) __tarkit_pending= __tarkit_exits=yes; [[ -z $__tarkit_e ]] || set -e;;
      pipe,"for "* | pipe,"case "* | pipe,"select "* | pipe,return*) ;;
      pipe,*) __tarkit_pending=; [[ -z $__tarkit_e ]] || set -e;;
      one,*) __tarkit_code=125; false;;
      *) [[ "${__tarkit_now[*]}" != *1[49][19]* ]] || eval "$__tarkit_is_answered" ||
        { [[ $__tarkit_stale ]] && eval "$__tarkit_is_stale"; } || eval "$__tarkit_check";;
    esac && {
      __tarkit_last=("$BASH_COMMAND" "${__tarkit_last[@]:0:7}") __tarkit_at=$__tarkit_here
      [[ $__tarkit_pending ]] || __tarkit_e=${-//[!e]/}
      [[ "$BASH_COMMAND " == "${FUNCNAME-} "* ]] || __tarkit_in="$BASHPID ${FUNCNAME-}"
      [[ $BASH_COMMAND != *__tarkit_command* ]] || __tarkit_last=("") __tarkit_at=1
    }
  fi
} 2>/dev/null || eval "$__tarkit_fail\""""

_RETURN = f"""\
{{ __tarkit_code=$? __tarkit_now=("${{PIPESTATUS[@]}}")
  eval "$__tarkit_latest"
  [[ $__tarkit_pending ]] || eval "$__tarkit_check"; }} {_BUSY} ||
  eval "$__tarkit_fail"
__tarkit_busy="""

_AT_END = """\
__tarkit_code=$? __tarkit_now=("${PIPESTATUS[@]}")
eval "$__tarkit_latest"
if [[ $__tarkit_pending == pipe ]]; then
  [[ $__tarkit_code != 141 ]] || __tarkit_code=0
elif [[ -z $__tarkit_pending ]]; then
  eval "$__tarkit_check" && if [[ $__tarkit_code != 0 && $BASH_SUBSHELL -eq $__tarkit_level &&
    ! ($__tarkit_filter && $__tarkit_code == 1) ]]; then
    __tarkit_now=("$__tarkit_code") __tarkit_name=$__tarkit_command __tarkit_line=1 __tarkit_hint=$__tarkit_hint_other
    eval "$__tarkit_describe"
    false
  fi
fi"""

_END = f"""{{ eval "$__tarkit_at_end"; }} {_BUSY} || eval "$__tarkit_fail"; exit "$__tarkit_code"
"""

# curl has an exit code of its own for a pipe that is closed. With -o or -O it means a file that
# cannot be written.
_CURL = """\
curl() {
  local __tarkit_each __tarkit_code=0
  command curl "$@" || __tarkit_code=$?
  if [[ $__tarkit_code == 23 && -p /dev/stdout ]]; then
    __tarkit_code=141
    for __tarkit_each; do
      case $__tarkit_each in --output* | --remote-name* | -[!-]*[oO]* | -[oO]*) __tarkit_code=23;; esac
    done
  fi
  return "$__tarkit_code"
}
"""

_TEXTS = {
    "hint_other": _HINT,
    "hint_condition": _HINT_CONDITION,
    "hint_filter": _HINT_FILTER,
    "hint_debug": _HINT_DEBUG,
    "classify": _CLASSIFY,
    "latest": _LATEST,
    "describe": _DESCRIBE,
    "fail": _FAIL,
    "check": _CHECK,
    "is_stale": _STALE,
    "is_answered": _ANSWERED,
    "at_end": _AT_END,
    "end": _END,
}


def _assigned(texts: Mapping[str, str]) -> str:
    return "".join(f"__tarkit_{name}={shlex.quote(text)}\n" for name, text in texts.items())


_TRAPS = f"""\
__tarkit_pending= __tarkit_stale= __tarkit_in= __tarkit_exits= __tarkit_busy= __tarkit_skipped=
__tarkit_inherited= __tarkit_e= __tarkit_shell= __tarkit_at=0
__tarkit_last=("")
{_assigned(_TEXTS)}set -E -o pipefail
trap {shlex.quote(_ERR)} ERR
"""

_BEFORE_EACH = f"""\
trap {shlex.quote(_DEBUG)} DEBUG
trap {shlex.quote(_RETURN)} RETURN
set -T
"""

_WITH_PIPEFAIL = ("bash", "zsh", "ksh", "mksh")
_WITHOUT = ("sh", "dash", "ash")

# Words of a shell's grammar, and commands whose words are commands, or end one.
_NOT_SIMPLE = re.compile(
    r"!|\[\[|[{}]|case|coproc|do|done|elif|else|esac|fi|for|function|if|in|select|then|time|until|while"
    r"|\.|builtin|command|eval|exit|return|set|shopt|source|trap|#.*"
)


class Driven(NamedTuple):
    """Parts of a script for a shell that runs a command by the rules many times.

    ``$__tarkit_scratch/$__tarkit_folder`` is the sample's folder there; the reason of a failure is
    written to a file beside it, whose name ends with ``.why``.

    Attributes:
        setup: evaluated once.
        tail: text after the command.
        end: commands that follow it.
    """

    setup: str = ""
    tail: str = ""
    end: str = ""


def driven(command: str, shell: str, flags: str | None, *, is_filter: bool = False) -> Driven:
    """Return the texts for a shell that stays alive, and evaluates the command in a subshell.

    The command is evaluated after ``$__tarkit_set``.

    Args:
        shell: bash, sh or dash, or a path that ends so.
        flags: None means the rules; ``""`` means none.
    """
    if flags is not None:
        return Driven()
    if os.path.basename(shell) != "bash":
        return Driven("if (set -o pipefail) 2>/dev/null; then set -o pipefail; fi; __tarkit_set='set -e'")
    setup = f"__tarkit_level=1 __tarkit_filter={'yes' * is_filter}\n{_TRAPS}"
    if not _needs_debug(command, is_filter):
        return Driven(f"{setup}__tarkit_set='set -e'")
    begin = f"__tarkit_begin={shlex.quote(f'{_BEFORE_EACH}set -e')}"
    return Driven(f"{setup}{begin} __tarkit_set='eval eval \"$__tarkit_begin\"'", _tail(command), f"\n{_END}")


def flags_of(shell: str, flags: str | None, *, nounset: bool = False) -> list[str]:
    """Return the words before ``-c`` of a shell that is started for one command.

    Args:
        flags: None takes the flags of the rules that the shell supports.
        nounset: an unset variable is an error, too.
    """
    if flags is not None:
        return flags.split()
    name, letters = os.path.basename(shell), "-eu" if nounset else "-e"
    return [f"{letters}o", "pipefail"] if name in _WITH_PIPEFAIL else [letters] if name in _WITHOUT else []


def what_is_missing(shell: str, flags: str | None) -> str | None:
    """Return one line about a shell that does not support all of the rules, or None."""
    name = os.path.basename(shell)
    if flags is not None or name in _WITH_PIPEFAIL:
        return None
    if name not in _WITHOUT:
        return f"--shell {shell}: its own rules decide which command fails; --shell-flags gives it others"
    try:
        found = subprocess.run(
            [shell, "-c", "set -o pipefail"], stdin=subprocess.DEVNULL, capture_output=True, check=False
        )
    except OSError:
        # Reported where it is started for the command.
        return None
    if found.returncode == 0:
        return None
    return f"--shell {shell} has no pipefail: of a pipeline only the last status counts; use bash"


def pod_words(command: str, shell: str) -> list[str] | None:
    """Return ``-c`` and the words up to the command, for a container that follows the rules.

    None if the shell's own errexit and pipefail have the same effect: it is not bash, or there is
    no pipeline in the command.
    """
    if os.path.basename(shell) != "bash" or not _needs_debug(command, False):
        return None
    run = '__tarkit_command=$2; eval "$1"; shift 2; eval "$__tarkit_command$__tarkit_tail"'
    rules = f"__tarkit_level=0 __tarkit_filter= __tarkit_folder=\n__tarkit_tail={shlex.quote(_tail(command))}\n{_TRAPS}"
    return ["-c", f"{run}\n{_END}", shell, f"{rules}{_CURL * ('curl' in command)}{_BEFORE_EACH}"]


def _needs_debug(command: str, is_filter: bool) -> bool:
    return "|" in command.replace("||", "") or (is_filter and not is_simple(command))


def _tail(command: str) -> str:
    # Behind a here-document that is not ended, or a backslash, it would be text of the command.
    return "" if "<<" in command or command.endswith("\\") else f"\n{_END}"


def is_simple(command: str) -> bool:
    """Return True if a shell command is certainly one simple command.

    Its exit code is then the same by any rules.
    """
    text = command.strip()
    if re.search(r"[\n`]|\$[({']|\s#", text):
        return False
    lexer = shlex.shlex(text, posix=True, punctuation_chars=True)
    lexer.commenters = ""
    lexer.whitespace_split = True
    try:
        words = list(lexer)
    except ValueError:
        return False
    operators = [word for word in words if word and set(word) <= set("();<>|&")]
    names = [word for word in words if not re.match(r"[A-Za-z_]\w*\+?=", word)]
    return (
        bool(names)
        and not _NOT_SIMPLE.fullmatch(names[0])
        and all(word in ("<", ">", ">>", ">&", "<&", "<<<") for word in operators)
    )
