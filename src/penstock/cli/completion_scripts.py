"""Completion scripts for three shells, each made from the tree of commands."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from penstock.cli.completion_tree import Command, Option, Value

# Names are asked of a node, if one answers at once; without one nothing is offered.
_ASK: Final = {
    Value.TOPIC: "penstock topic list --no-headers --timeout 1 2>/dev/null | cut -f 1",
    Value.GROUP: "penstock group list --no-headers --timeout 1 2>/dev/null | cut -f 1",
}

_BASH: Final = """\
# Completion of penstock for bash: source it, or put it where your bash looks for completions.
_penstock_words() {
    case "$1" in
@WORDS@
    esac
}

_penstock_options() {
    case "$1" in
@OPTIONS@
    esac
}

# What follows an option, or stands for itself: words, or one of @file, @directory, @topic, @group, @anything.
_penstock_values() {
    case "$1" in
@VALUES@
    esac
}

_penstock() {
    local cur="${COMP_WORDS[COMP_CWORD]}" prev="" path="" word="" values="" at
    COMPREPLY=()
    for ((at = 1; at < COMP_CWORD; at++)); do
        word="${COMP_WORDS[at]}"
        case " $(_penstock_words "$path") " in
            *" $word "*) path="${path:+$path }$word" ;;
        esac
    done
    ((COMP_CWORD > 1)) && prev="${COMP_WORDS[COMP_CWORD - 1]}"
    if [[ $prev == -* ]]; then
        values="$(_penstock_values "$path $prev")"
    fi
    if [[ -z $values ]]; then
        if [[ $cur == -* ]]; then
            values="$(_penstock_options "$path")"
        else
            values="$(_penstock_words "$path")"
            [[ -n $values ]] || values="$(_penstock_values "$path")"
        fi
    fi
    case "$values" in
        @file) compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -f -- "$cur"); return ;;
        @directory) compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -d -- "$cur"); return ;;
        @topic) values="$(@TOPICS@)" ;;
        @group) values="$(@GROUPS@)" ;;
        @anything) return ;;
    esac
    mapfile -t COMPREPLY < <(compgen -W "$values" -- "$cur")
}

complete -F _penstock penstock
"""

_ZSH: Final = """\
#compdef penstock
# Completion of penstock for zsh: put it as _penstock into a folder of $fpath, or source it after compinit.
_penstock_words() {
    case "$1" in
@WORDS@
    esac
}

_penstock_options() {
    case "$1" in
@OPTIONS@
    esac
}

# What follows an option, or stands for itself: words, or one of @file, @directory, @topic, @group, @anything.
_penstock_values() {
    case "$1" in
@VALUES@
    esac
}

_penstock() {
    local cur="${words[CURRENT]}" prev="" place="" word values="" at
    for ((at = 2; at < CURRENT; at++)); do
        word="${words[at]}"
        if [[ " $(_penstock_names "$place") " == *" $word "* ]]; then
            place="${place:+$place }$word"
        fi
    done
    ((CURRENT > 2)) && prev="${words[CURRENT - 1]}"
    [[ $prev == -* ]] && values="$(_penstock_values "$place $prev")"
    if [[ -z $values && $cur != -* && -z "$(_penstock_words "$place")" ]]; then
        values="$(_penstock_values "$place")"
    fi
    case "$values" in
        @file) _files; return ;;
        @directory) _files -/; return ;;
        @topic) compadd -- ${(f)"$(@TOPICS@)"}; return ;;
        @group) compadd -- ${(f)"$(@GROUPS@)"}; return ;;
        @anything) return ;;
        ?*) compadd -- ${=values}; return ;;
    esac
    local -a described
    if [[ $cur == -* ]]; then
        described=(${(f)"$(_penstock_options "$place")"})
        _describe -o option described
    else
        described=(${(f)"$(_penstock_words "$place")"})
        _describe command described
    fi
}

_penstock_names() {
    local line
    for line in ${(f)"$(_penstock_words "$1")"}; do print -rn -- "${line%%:*} "; done
}

if [[ $funcstack[1] == _penstock ]]; then
    _penstock "$@"
else
    compdef _penstock penstock
fi
"""

_FISH: Final = """\
# Completion of penstock for fish: put it into ~/.config/fish/completions/penstock.fish, or source it.
function __penstock_at --description 'Whether the words so far name this command'
    set -l words (commandline -opc)
    set -e words[1]
    set -l place
    for word in $words
        if contains -- (string join -- ' ' $place $word) $__penstock_commands
            set place $place $word
        end
    end
    test "$place" = "$argv"
end

set -g __penstock_commands @COMMANDS@
complete -c penstock -f
"""


def bash_script(tree: Command) -> str:
    """For bash 4 and newer."""
    return _filled(_BASH, tree, lambda words: " ".join(name for name, _ in words))


def zsh_script(tree: Command) -> str:
    """For zsh, with a line about each word."""
    return _filled(_ZSH, tree, lambda words: "\n".join(f"{_escaped(name)}:{_short(doc)}" for name, doc in words))


def fish_script(tree: Command) -> str:
    """For fish 3 and newer, with a line about each word."""
    commands = " ".join(_quoted(" ".join(command.path)) for command in tree.all() if command.path)
    lines = [_FISH.replace("@COMMANDS@", commands)]
    for command in tree.all():
        where = f"complete -c penstock -n {_quoted('__penstock_at ' + ' '.join(command.path))}"
        lines += (f"{where} -a {below.path[-1]} -d {_quoted(_short(below.doc))}\n" for below in command.below)
        lines += (f"{where}{_fish_option(option)}\n" for option in command.options)
        lines += (f"{where}{values}\n" for argument in command.arguments if (values := _fish_values(argument)))
    return "".join(lines)


SCRIPTS: Final[Mapping[str, Callable[[Command], str]]] = {"bash": bash_script, "zsh": zsh_script, "fish": fish_script}

Words = list[tuple[str, str]]


def _filled(template: str, tree: Command, joined: Callable[[Words], str]) -> str:
    words = {" ".join(command.path): joined([(below.path[-1], below.doc) for below in command.below]) for command in tree.all()}
    options = {
        " ".join(command.path): joined([(name, option.doc) for option in command.options for name in option.names])
        for command in tree.all()
    }
    parts = {"@WORDS@": _cases(words), "@OPTIONS@": _cases(options), "@VALUES@": _cases(dict(_values(tree)))}
    parts |= {"@TOPICS@": _ASK[Value.TOPIC], "@GROUPS@": _ASK[Value.GROUP]}
    for mark, text in parts.items():
        template = template.replace(mark, text)
    return template


def _values(tree: Command) -> Iterator[tuple[str, str]]:
    for command in tree.all():
        path = " ".join(command.path)
        for option in command.options:
            for name in option.names:
                yield f"{path} {name}", _offered(option)
        if command.arguments:
            yield path, _offered(command.arguments[-1])


def _offered(option: Option) -> str:
    if option.choices:
        return " ".join(option.choices)
    return "" if option.value is Value.NOTHING else f"@{option.value.value}"


def _cases(values: Mapping[str, str]) -> str:
    """Places with the same answer share a line."""
    places: dict[str, list[str]] = {}
    for place, answer in values.items():
        if answer:
            places.setdefault(answer, []).append(_quoted(place))
    return "\n".join(f"        {' | '.join(names)}) printf '%s' {_quoted(answer)} ;;" for answer, names in places.items())


def _fish_option(option: Option) -> str:
    names = "".join(f" -l {name[2:]}" if name.startswith("--") else f" -s {name[1:]}" for name in option.names)
    return f"{names}{_fish_values(option)} -d {_quoted(_short(option.doc))}"


def _fish_values(option: Option) -> str:
    if option.choices:
        return f" -x -a {_quoted(' '.join(option.choices))}"
    match option.value:
        case Value.NOTHING:
            return ""
        case Value.FILE:
            return " -r -F"
        case Value.DIRECTORY:
            return " -x -a '(__fish_complete_directories)'"
        case Value.TOPIC | Value.GROUP:
            return f" -x -a {_quoted('(' + _ASK[option.value] + ')')}"
        case Value.ANYTHING:
            return " -x" if option.names else ""


def _short(doc: str) -> str:
    """The first clause: a shell shows one line."""
    first = re.split(r" \(default|; |\. |: ", doc, maxsplit=1)[0].strip()
    return first if len(first) <= 70 else first[:69].rsplit(" ", 1)[0] + " …"


def _escaped(name: str) -> str:
    return name.replace(":", "\\:")


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"
