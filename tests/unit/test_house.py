"""Rules for the code: sizes of folders, modules and classes, names, imports of tests, and what each layer may use.

The allowances list what was too large when a rule was made. They may only shrink: one that is not needed fails.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.support.paths import ROOT, of_the_package, parsed, python_files, relative

MOST_FILES, MOST_FILES_SQL, MOST_LINES = 20, 30, 350
MOST_LINES_OF_A_CLASS, MOST_ATTRIBUTES = 200, 12
FILES_ALLOWED: dict[str, int] = {}
LINES_ALLOWED: dict[str, int] = {}
CLASS_LINES_ALLOWED: dict[str, int] = {}
ATTRIBUTES_ALLOWED = {
    "pgsched/cli/top/reader.py: Reader": 13,
}
PUBLIC_OF_NAMED_TUPLES = ("_asdict", "_fields", "_make", "_replace")
PRIVATE_OF_PYTHON_ALLOWED = {
    "_enter_task", "_leave_task", "_set_running_loop",  # documented for authors of event loops and tasks
    "_is_protocol",
    "_from_testcase",  # the blocks of django.test.TestCase, which are never committed: Django has no public name
}  # fmt: skip


def check(large: dict[str, int], allowed: dict[str, int]) -> None:
    assert {name: count for name, count in large.items() if count > allowed.get(name, 0)} == {}, "too large"
    assert sorted(allowed.keys() - large.keys()) == [], "these are small enough: take them off the list"


def test_no_folder_has_too_many_files() -> None:
    folders = Counter(relative(path.parent) for path in python_files())
    folders["sql"] = len([*(ROOT / "sql").glob("*.sql")])
    most = Counter({"sql": MOST_FILES_SQL})
    large = {name: count for name, count in folders.items() if count > (most[name] or MOST_FILES)}
    check(large, FILES_ALLOWED)


def test_no_module_is_too_long() -> None:
    scripts = (ROOT / "pgsched" / "web" / "static").iterdir()
    lines = {relative(path): len(path.read_text().splitlines()) for path in [*python_files(), *scripts]}
    long = {name: count for name, count in lines.items() if count > MOST_LINES}
    check(long, LINES_ALLOWED)


def classes(paths: Iterable[Path]) -> Iterator[tuple[str, ast.ClassDef]]:
    """Yield the classes of these modules, each with its module and name."""
    for path, tree in parsed(paths, about=r"^\s*class "):
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                yield f"{relative(path)}: {node.name}", node


def is_record(node: ast.ClassDef) -> bool:
    """Check whether a class is a record: its attributes are columns or options, however many those are."""
    shown = " ".join(ast.unparse(one) for one in [*node.decorator_list, *node.bases])
    return re.search(r"\b(dataclass|NamedTuple|TypedDict)\b", shown) is not None


def attributes(node: ast.ClassDef) -> set[str]:
    """Return the names that methods assign to `self`, and those that the class itself declares."""
    assigned = {
        one.attr
        for one in ast.walk(node)
        if isinstance(one, ast.Attribute) and isinstance(one.ctx, ast.Store) and ast.unparse(one.value) == "self"
    }
    declared = {
        one.target.id for one in node.body if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)
    }
    return assigned | declared


def test_no_class_is_too_long() -> None:
    long = [path for path in of_the_package() if path.read_text().count("\n") > MOST_LINES_OF_A_CLASS]
    lines = {name: (node.end_lineno or 0) - node.lineno + 1 for name, node in classes(long)}
    check({name: count for name, count in lines.items() if count > MOST_LINES_OF_A_CLASS}, CLASS_LINES_ALLOWED)


def test_no_class_but_a_record_has_too_many_attributes() -> None:
    counts = {name: len(attributes(node)) for name, node in classes(of_the_package()) if not is_record(node)}
    check({name: count for name, count in counts.items() if count > MOST_ATTRIBUTES}, ATTRIBUTES_ALLOWED)


def test_no_test_module_imports_another() -> None:
    imported = re.compile(r"^\s*from (tests\.(?!support\b|conftest\b)\S+)", re.MULTILINE)
    wrong = [
        f"{relative(path)}: {module}"
        for path in (ROOT / "tests").rglob("*.py")
        for module in imported.findall(path.read_text())
    ]
    assert wrong == []


def test_no_two_test_modules_have_the_same_name() -> None:
    names = Counter(path.name for path in (ROOT / "tests").rglob("test_*.py"))
    assert [name for name, count in names.items() if count > 1] == []


# a private name behind a point, in an import or in a string
PRIVATE = (
    r"(?<!\bself)(?<!\bcls)\._[a-z]"
    r"|^\s*from \S+ import (?:\([^)]*?|[^(\n]*?)(?<!\w)_[a-z]"
    r"|[\"'](?:[\w.]*\.)?_[a-z]\w*[\"']"
)


def private_names(tree: ast.Module) -> Iterator[str]:
    """Yield the private names of other objects that a module reads, writes, imports or patches."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            if not (isinstance(node.value, ast.Name) and node.value.id in ("self", "cls", "os", "sys")):
                yield node.attr
        elif isinstance(node, ast.ImportFrom):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.Call) and re.fullmatch(r"[a-z]+attr", name_of(node.func)):
            given = (one.value for one in node.args[:2] if isinstance(one, ast.Constant))
            yield from (str(name).rpartition(".")[2] for name in given)


def name_of(function: ast.expr) -> str:
    """Return the last name of what is called; nothing if it has none."""
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def test_only_unit_tests_use_private_attributes() -> None:
    """Other tests wait for what an object offers, or look at rows, logs and answers."""
    others = [path for path in python_files() if not relative(path).startswith(("pgsched/", "tests/unit/"))]
    wrong = [
        f"{relative(path)}: {name}"
        for path, tree in parsed(others, about=PRIVATE)
        for name in private_names(tree)
        if re.match(r"_[a-z]", name) and name not in PUBLIC_OF_NAMED_TUPLES
    ]
    assert wrong == []


def own_private_names(path: Path) -> list[str]:
    """Return the private names that a module defines: functions, and attributes of `self`."""
    return re.findall(r"\b(?:def |self\.)(_\w+)", path.read_text())


def test_the_package_uses_no_private_name_of_python_or_a_library() -> None:
    """The next version may rename a private name. For example, ask a task itself whether it was cancelled."""
    own = {name for path in of_the_package() for name in own_private_names(path)}
    used = {name for _, tree in parsed(of_the_package(), about=PRIVATE) for name in private_names(tree)}
    foreign = {name for name in used if re.match(r"_[a-z]", name)} - own
    assert foreign - {*PUBLIC_OF_NAMED_TUPLES} == PRIVATE_OF_PYTHON_ALLOWED


def test_no_property_test_has_a_deadline_for_each_example() -> None:
    """The default deadline of Hypothesis is 200 ms, and a busy machine sometimes takes longer."""
    bounded = [
        f"{relative(path)}: {node.name}"
        for path in (ROOT / "tests").rglob("*.py")
        for text in [path.read_text()]
        if "given(" in text
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef)
        for decorators in [" ".join(ast.unparse(one) for one in node.decorator_list)]
        if re.search(r"\bgiven\(", decorators) and not re.search(r"deadline=None|\b(patient|examples)\(", decorators)
    ]
    assert bounded == []


def may_replace_an_import(text: str) -> bool:
    """Check whether a word that begins a line, or one within `a = b = c`, is imported by the same text."""
    imports = " ".join(re.findall(r"^from \S+ import (\([^)]*\)|[^(\n]*)", text, re.MULTILINE))
    begun = re.findall(r"^\w+", text, re.MULTILINE) + re.findall(r" = (\w+) =", text)
    return not {*begun}.isdisjoint(re.findall(r"\w+", imports))


def test_no_module_assigns_to_a_name_that_it_imports() -> None:
    """The assignment would silently replace the import, and comparisons would use another object."""
    taken = [
        f"{relative(path)}:{node.lineno}: {target.id}"
        for path in python_files()
        for text in [path.read_text()]
        if may_replace_an_import(text)
        for body in [ast.parse(text).body]
        for imported in [{a.asname or a.name for node in body if isinstance(node, ast.ImportFrom) for a in node.names}]
        for node in body
        if isinstance(node, ast.Assign | ast.AnnAssign)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name) and target.id in imported
    ]
    assert taken == []


def test_each_statement_has_one_name() -> None:
    names = Counter(
        name
        for path in (ROOT / "sql").glob("*.sql")
        for name in re.findall(r"^-- name: (\w+)$", path.read_text(), re.MULTILINE)
    )
    assert len(names) > 200
    assert [name for name, count in names.items() if count > 1] == []


def test_statements_are_named_only_in_db_queries() -> None:
    """One place knows a statement's name, its parameters and the meaning of its rows."""
    names = {
        name
        for path in (ROOT / "sql").glob("*.sql")
        for name in re.findall(r"^-- name: (\w+)$", path.read_text(), re.MULTILINE)
    }
    calls = re.compile(r"(^|\.)(sql|fetch|fetch_as|column|value|rows|one)$")
    outside = [
        f"{relative(path)}:{node.lineno}: {given.value}"
        for path in of_the_package()
        if not relative(path).startswith("pgsched/db/queries/") and relative(path) != "pgsched/db/rows.py"
        for text in [path.read_text()]
        if not names.isdisjoint(re.findall(r"[\"'](\w+)[\"']", text))
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call) and calls.search(ast.unparse(node.func))
        for given in node.args
        if isinstance(given, ast.Constant) and given.value in names
    ]
    assert outside == []


def test_many_runs_are_changed_in_one_place() -> None:
    """One rule for all callers: which runs are meant, how many at most, and what is said about skipped runs."""
    doors = [
        f"{relative(path)}:{node.lineno}"
        for path, tree in parsed(of_the_package(), about="retry_many|cancel_many")
        if not relative(path).startswith("pgsched/db/queries/")
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr in ("retry_many", "cancel_many")
        if ast.unparse(node.value) != "do"  # the operations of the API, which call the service
    ]
    assert {door.split(":")[0] for door in doors} == {"pgsched/services/runs/changes.py"}


RIDDLES = {"told", "said", "held", "made", "tried", "ways", "passed", "aside", "hand", "rest"}
# such a word, and what can follow a name where it is defined
RIDDLE = rf"(?i)(?<![^\W_])(?:{'|'.join(sorted(RIDDLES))})(?: *(?:[-+*/%@&|^<>]*[=:,()\]}}])| in\b| *$)"


def given_names(node: ast.AST) -> Iterator[str]:
    """Yield the names that a node of a syntax tree defines."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id
    elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
        yield node.attr
    elif isinstance(node, ast.arg):
        yield node.arg
    elif isinstance(node, ast.alias):
        yield node.asname or ""
    elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar):
        yield node.name or ""


def test_no_name_of_the_package_is_on_the_list_of_riddles() -> None:
    """A participle says that something happened, not what there is: a message, the keys, a timer."""
    riddles = [
        f"{relative(path)}:{getattr(node, 'lineno', 0)}: {name}"
        for path, tree in parsed(of_the_package(), about=RIDDLE)
        for node in ast.walk(tree)
        for name in given_names(node)
        if name.lstrip("_").lower() in RIDDLES
    ]
    assert riddles == []


# Verbs of use cases: command line, console, API, services and statements do the same thing to one noun. The module is
# named after the noun (`jobs.pause`, `queues.pause`). `register` is the hook by which a module declares itself.
MAY_REPEAT = {
    "cancel", "delete", "drain", "pause", "register", "remove_limit", "resume", "retry", "run", "set_limit",
    "set_queue", "show", "update",
}  # fmt: skip
MODULES_OF_A_NAME = 3


def test_a_public_function_name_means_one_thing() -> None:
    """A reader who searches for a name finds one meaning: the same name in many modules is too general."""
    names = Counter(
        name
        for path in of_the_package()
        for name in {*re.findall(r"^(?:async )?def ([A-Za-z]\w*)", path.read_text(), re.MULTILINE)}
    )
    repeated = {name for name, count in names.items() if count > MODULES_OF_A_NAME}
    assert sorted(repeated - MAY_REPEAT) == [], "name the object as well: count_jobs, write_pages"
    assert sorted(MAY_REPEAT - repeated) == [], "these are in few modules now: take them off the list"


CHANGES = {
    "add", "add_backfill", "add_dates", "cancel", "cancel_graph", "cancel_many", "change", "change_in_batches",
    "change_settings", "delete", "delete_runs", "drain", "insert_edges", "pause", "remove", "remove_limit",
    "reset_mark", "resume", "retry", "retry_graph", "retry_many", "set_limit", "set_queue", "trigger", "update",
}  # fmt: skip


def test_command_line_and_console_change_things_through_services() -> None:
    """Then the checks before a change and the messages about it are the same for people and programs."""
    by_themselves = []
    for path in [*(ROOT / "pgsched/cli").rglob("*.py"), *(ROOT / "pgsched/web").rglob("*.py")]:
        nodes = list(ast.walk(ast.parse(path.read_text())))
        for function in [node for node in nodes if isinstance(node, ast.Module | ast.FunctionDef)]:
            queries = {
                alias.asname or alias.name
                for node in function.body
                if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("pgsched.db.queries")
                for alias in node.names
            }
            by_themselves += [
                f"{relative(path)}:{node.lineno}: {ast.unparse(node)}"
                for node in ast.walk(function)
                if isinstance(node, ast.Attribute) and node.attr in CHANGES
                if isinstance(node.value, ast.Name) and node.value.id in queries
            ]
    assert by_themselves == []


# Containers may have no writable directory, and users no home. A module that needs one must report if it is missing.
NEEDS_A_PLACE = re.compile(
    r"\b(Path\.home|expanduser|getuser|getpwuid|info\.get_parameters|TemporaryFile|NamedTemporaryFile|mkdtemp|mkstemp)\("
    r"|TemporaryDirectory\(|\binfo\.dsn\b"
)
MAY_NEED_A_PLACE = {
    "pgsched/recipes/sessions/session.py",  # the name of the user, if it has one
    "pgsched/db/embedded/cluster.py",  # a server has its data in a directory
    "pgsched/db/embedded/server.py",
    "pgsched/db/schema/dump.py",  # for developers
    "pgsched/execute/anonymous_file.py",  # only where the kernel has no file without a name
    "pgsched/web/security/keys.py",  # keeps a key across restarts where there is a home
    "pgsched/worker/supervision/endpoint_proxy.py",
}


def test_only_these_modules_need_a_directory_or_a_home() -> None:
    need = {
        relative(path)
        for path in (ROOT / "pgsched").rglob("*.py")
        if NEEDS_A_PLACE.search(path.read_text()) and path.parts[len(ROOT.parts) + 1] not in ("chaos", "testing")
    }
    assert need == MAY_NEED_A_PLACE
