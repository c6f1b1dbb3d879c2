"""Wrong profiles: each mutation gives a profile and its parameters back with one mistake in them.

`sandbox-exec` of a stand-in that was built with a mutation makes it before it reads the profile, so the
server that is tested is the one that users run.
"""

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True, kw_only=True)
class Given:
    """What `sandbox-exec` is given."""

    forms: tuple[str, ...]
    parameters: Mapping[str, str]

    @property
    def text(self) -> str:
        return "\n".join(self.forms)


Mutation = Callable[[Given], Given]


def mutated(name: str, text: str, parameters: Mapping[str, str]) -> tuple[str, Mapping[str, str]]:
    """The profile and the parameters with the mistake `name` in them, if there is a place for it."""
    given = MUTATIONS[name](Given(forms=tuple(pieces(text)), parameters=parameters))
    return given.text, given.parameters


def pieces(text: str) -> Iterator[str]:
    """The lists in `text`, and what stands between them at the same depth."""
    depth, start, at = 0, 0, 0
    for token in re.finditer(r'#?"(?:[^"\\]|\\.)*"|;[^\n]*|[()]|[^\s()";]+', text):
        if depth == 0:
            start = token.start()
        depth += {"(": 1, ")": -1}.get(token[0], 0)
        at = token.end()
        if depth == 0 and not token[0].startswith(";"):
            yield text[start:at]


def _parts(form: str) -> list[str]:
    return list(pieces(form[1:-1]))


def _list(parts: Sequence[str]) -> str:
    return f"({' '.join(parts)})"


def _names_of(given: Given, last: str) -> set[str]:
    """The parameters whose path ends with `last`."""
    return {name for name, path in given.parameters.items() if path.endswith(f"/{last}")}


# --- kinds of mistakes -------------------------------------------------------------------------------------


def _insert(rule: str) -> Mutation:
    """A rule too many, before all others."""
    return lambda given: replace(given, forms=(*given.forms[:1], rule, *given.forms[1:]))


def _append(rule: str) -> Mutation:
    """A rule too many, after all others."""
    return lambda given: replace(given, forms=(*given.forms, rule))


def _allow(operation: str) -> Mutation:
    """An operation allowed that a rule without filters denies."""

    def allowing(given: Given) -> Given:
        forms = [_parts(form) for form in given.forms]
        changed = [[part for part in parts if parts[0] != "deny" or part != operation] for parts in forms]
        return _insert(f"(allow {operation})")(replace(given, forms=tuple(map(_list, changed))))

    return allowing


def _is_of_git(form: str) -> bool:
    """Whether a rule denies the folder of git, with whatever invisible characters in its name."""
    plain = re.sub(r"\[\^[^]]*\]\*", "", form)
    return form.startswith("(deny") and "[gG][iI][tT](/" in plain


def _without_git(given: Given) -> Given:
    return replace(given, forms=tuple(form for form in given.forms if not _is_of_git(form)))


def _substitute(pattern: str, by: str) -> Mutation:
    return lambda given: replace(given, forms=tuple(re.sub(pattern, by, form) for form in given.forms))


def _drop(pattern: str) -> Mutation:
    """Without the rules that begin with `pattern`."""
    return lambda given: replace(given, forms=tuple(f for f in given.forms if not re.match(pattern, f)))


def _forget(verdict: str, last: str) -> Mutation:
    """Without the filters for a path that ends with `last`, in rules of this verdict."""

    def forgetting(given: Given) -> Given:
        names = _names_of(given, last)

        def without(form: str) -> str:
            parts = _parts(form)
            if parts[0] != verdict:
                return form
            left = [part for part in parts if not any(f'(param "{name}")' in part for name in names)]
            has_filters = any(part.startswith("(") for part in left)
            return form if left == parts else _list(left) if has_filters else ""

        return replace(given, forms=tuple(filter(None, map(without, given.forms))))

    return forgetting


def _denials_first(given: Given) -> Given:
    """What is denied stands before what is allowed."""
    with_filters = [form for form in given.forms if any(part.startswith("(") for part in _parts(form))]
    others = [form for form in given.forms if form not in with_filters]
    ordered = sorted(with_filters, key=lambda form: not form.startswith("(deny"))
    return replace(given, forms=(*others, *ordered))


def _parent_of_root(given: Given) -> Given:
    names = _names_of(given, "root")
    moved = {
        name: os.path.dirname(path) if name in names else path for name, path in given.parameters.items()
    }
    return replace(given, parameters=moved)


def _without_parameter(given: Given) -> Given:
    names = _names_of(given, "state")
    return replace(given, parameters={n: path for n, path in given.parameters.items() if n not in names})


def _write_root(given: Given) -> Given:
    names = sorted(_names_of(given, "root"))
    paths = [path for name, path in given.parameters.items() if name in names] or ["/"]
    return _append(f'(allow file-write* (subpath "{paths[0]}"))')(given)


EVERYWHERE = '(subpath "/")'

MUTATIONS: Mapping[str, Mutation] = {
    "everything is allowed": _substitute(r"^\(deny default.*", "(allow default)"),
    "files are written everywhere": _insert(f"(allow file-write* {EVERYWHERE})"),
    "files are made everywhere": _append(f"(allow file-write-create {EVERYWHERE})"),
    "files are removed everywhere": _append(f"(allow file-write-unlink {EVERYWHERE})"),
    "content is written everywhere": _append(f"(allow file-write-data {EVERYWHERE})"),
    "modes are changed everywhere": _append(f"(allow file-write-mode {EVERYWHERE})"),
    "the root is written, protected names too": _write_root,
    "the parent of the root is the root": _parent_of_root,
    "the state folder is read": _forget("deny", "state"),
    "a hidden path is read": _forget("deny", "hidden"),
    "protected names are written": _drop(r"\(deny file-write.*\(regex "),
    "the folder of git is written": _without_git,
    "roots and the ways to hidden paths are moved": _drop(r"\(deny file-write-unlink \(literal"),
    "what is denied stands before what is allowed": _denials_first,
    "the network is used": _insert("(allow network*)"),
    "Unix sockets are used": _append("(allow network-outbound (remote unix-socket))"),
    "loopback is used": _append('(allow network-outbound (remote ip "localhost:*"))'),
    "other processes get signals": _substitute(r"\(allow signal .*", "(allow signal)"),
    "other processes are looked at": _allow("process-info*"),
    "every service is used": _insert("(allow mach-lookup)"),
    "Apple events are sent": _allow("appleevent-send"),
    "jobs are given to launchd": _allow("job-creation"),
    "memory is shared by name": _allow("ipc-posix-shm*"),
    "an operation is misspelt": _substitute(r"file-write\*", "file-wriet*"),
    "a filter is misspelt": _substitute(r"\(subpath ", "(sub-path "),
    "a parameter is missing": _without_parameter,
    "the version is missing": _drop(r"\(version"),
    "a parenthesis is missing": lambda given: replace(given, forms=(*given.forms[:-1], given.forms[-1][:-1])),
    "no program starts": _drop(r"\(allow process-exec"),
    "no process is made": _drop(r"\(allow process-fork"),
    "nothing is read": _drop(r"\(allow file-read\*"),
    "the root is not written": _forget("allow", "root"),
}
"""By what is wrong then."""
