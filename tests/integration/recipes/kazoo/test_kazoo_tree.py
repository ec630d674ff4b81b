"""Kazoo's tree of nodes: what its documentation says of create, get, set, delete, exists and get_children."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import psycopg
import pytest

from pgsched.recipes.kazoo import KazooClient
from pgsched.recipes.kazoo.exceptions import (
    BadVersionError,
    NoAuthError,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    UnimplementedError,
    ZookeeperError,
)
from tests.support.logins import Logins
from tests.support.waiting import wait_until

Background = Callable[..., Future[Any]]

# ---- create


def test_a_node_has_the_data_that_it_was_made_with(client: KazooClient, other: KazooClient) -> None:
    client.ensure_path("/my/favorite")
    assert client.create("/my/favorite/node", b"a value") == "/my/favorite/node"
    data, stat = other.get("/my/favorite/node")
    assert (data, stat.version) == (b"a value", 0)


@pytest.mark.parametrize("data", [b"", b"\x00\xff", "grüß".encode(), b"7", b"{}", None])
def test_data_come_back_as_they_were(client: KazooClient, data: bytes | None) -> None:
    client.create("/node", data)
    assert client.get("/node")[0] == data
    assert client.get("/node")[1].data_length == len(data or b"")


@pytest.mark.long
def test_an_ephemeral_node_goes_with_its_session(
    client: KazooClient, other: KazooClient, expire: Callable[[KazooClient], None]
) -> None:
    client.create("/app", b"stays")
    client.create("/app/mine", ephemeral=True)
    session = client.client_id
    assert session is not None
    stat = other.exists("/app/mine")
    assert stat is not None and stat.owner_session_id == session[0]
    expire(client)
    wait_until(lambda: other.exists("/app/mine") is None)
    client.create("/app/mine", ephemeral=True)
    client.stop()
    assert other.get_children("/app") == [] and other.get("/app")[0] == b"stays"


def test_nodes_of_a_sequence_have_growing_numbers_of_ten_digits(client: KazooClient) -> None:
    client.create("/app")
    paths = [client.create("/app/node-", sequence=True) for _ in range(3)]
    assert paths == ["/app/node-0000000000", "/app/node-0000000001", "/app/node-0000000002"]
    client.delete(paths[2])
    assert client.create("/app/", sequence=True, ephemeral=True) == "/app/0000000003", "a number is not used again"


def test_nodes_of_a_sequence_never_exist_already(
    client: KazooClient, other: KazooClient, background: Background
) -> None:
    client.create("/app")
    client.create("/app/node-0000000001")

    def make(one: KazooClient) -> list[str]:
        return [one.create("/app/node-", sequence=True) for _ in range(10)]

    paths = [path for one in [background(make, one) for one in (client, other)] for path in one.result(20)]
    assert len({*paths}) == 20


def test_a_path_has_one_node(client: KazooClient) -> None:
    client.create("/app")
    with pytest.raises(NodeExistsError):
        client.create("/app")
    with pytest.raises(NodeExistsError):
        client.create("/")


def test_a_node_needs_a_parent_or_makepath(client: KazooClient) -> None:
    with pytest.raises(NoNodeError):
        client.create("/a/b/c")
    assert client.exists("/a") is None
    assert client.create("/a/b/c", b"x", makepath=True) == "/a/b/c"
    assert client.get_children("/a") == ["b"] and client.get("/a/b")[0] == b""


def test_an_ephemeral_node_has_no_children(client: KazooClient) -> None:
    client.create("/mine", ephemeral=True)
    for makepath in (False, True):
        with pytest.raises(NoChildrenForEphemeralsError):
            client.create("/mine/child/deeper" if makepath else "/mine/child", makepath=makepath)


def test_create_returns_the_figures_as_well(client: KazooClient) -> None:
    path, stat = client.create("/app", b"abc", include_data=True)
    assert path == "/app"
    assert (stat.version, stat.data_length, stat.children_count, stat.owner_session_id) == (0, 3, 0, None)


def test_data_that_are_too_large_are_refused(client: KazooClient) -> None:
    client.create("/app")
    for change in (lambda: client.create("/app/x", b"x" * 70_000), lambda: client.set("/app", b"\xff" * 70_000)):
        with pytest.raises(ZookeeperError, match="65,536"):
            change()


def test_values_of_other_types_are_refused(client: KazooClient) -> None:
    with pytest.raises(TypeError):
        client.create("/app", "text")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        client.create("/app", ephemeral=1)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        client.set("/app", 1)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        client.set("/app", b"", version="1")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        client.get("/app", watch=1)  # type: ignore[arg-type]


def test_ensure_path_makes_all_nodes_of_a_path(client: KazooClient) -> None:
    for _ in range(2):
        assert client.ensure_path("/a/b/c") is True
    assert client.get("/a/b/c")[0] == b""


# ---- read


def test_exists_returns_figures_or_none(client: KazooClient) -> None:
    assert client.exists("/app") is None
    client.create("/app")
    assert client.exists("/app") == client.get("/app")[1]


def test_get_needs_a_node(client: KazooClient) -> None:
    for call in (client.get, client.get_children, client.delete):
        with pytest.raises(NoNodeError):
            call("/app")
    with pytest.raises(NoNodeError):
        client.set("/app", b"")


def test_get_children_returns_names(client: KazooClient) -> None:
    for path in ("/app/b/deep", "/app/a", "/app/c-1", "/app/c", "/apple"):
        client.create(path, makepath=True)
    assert sorted(client.get_children("/app")) == ["a", "b", "c", "c-1"]
    assert sorted(client.get_children("/")) == ["app", "apple"]
    names, stat = client.get_children("/app", include_data=True)
    assert len(names) == stat.children_count == 4
    assert client.get_children("/", include_data=True)[1].children_count == 2
    assert client.get_children("/app/a") == []


def test_the_figures_of_a_node(client: KazooClient) -> None:
    client.create("/app", b"abc")
    made = client.get("/app")[1]
    assert made.creation_transaction_id == made.last_modified_transaction_id
    assert abs(made.created - made.last_modified) < 1 and made.created > 1_700_000_000
    client.create("/app/child")
    stat = client.set("/app", b"abcd")
    assert (stat.version, stat.data_length, stat.children_count, stat.acl_version) == (1, 4, 1, 0)
    assert stat.creation_transaction_id == made.creation_transaction_id < stat.last_modified_transaction_id
    assert stat.children_version == 1
    client.delete("/app/child")
    assert client.get("/app")[1].children_version == 2


def test_a_parent_of_keys_of_other_recipes_is_a_node(client: KazooClient) -> None:
    counter = client.Counter("/counters/deep/one")
    counter += 1
    assert client.get_children("/counters") == ["deep"]
    data, stat = client.get("/counters/deep")
    assert (data, stat.version, stat.children_count) == (b"", 0, 1)
    with pytest.raises(NotEmptyError):
        client.delete("/counters/deep")
    assert client.set("/counters/deep", b"x").version == 1
    assert client.create("/counters", b"made") == "/counters"
    with pytest.raises(NodeExistsError):
        client.create("/counters")


# ---- set and delete


def test_set_changes_the_data_and_counts_versions(client: KazooClient) -> None:
    client.create("/app", b"first")
    assert client.set("/app", b"second").version == 1
    assert client.set("/app", b"third", version=1).version == 2
    assert client.get("/app")[0] == b"third"


def test_set_with_another_version_is_refused(client: KazooClient) -> None:
    client.create("/app", b"first")
    with pytest.raises(BadVersionError):
        client.set("/app", b"second", version=1)
    assert client.get("/app")[0] == b"first"
    assert client.set("/app", b"second", version=-1).version == 1


def test_set_leaves_a_node_ephemeral(client: KazooClient, other: KazooClient) -> None:
    client.create("/mine", ephemeral=True)
    other.set("/mine", b"x")
    client.stop()
    assert other.exists("/mine") is None


def test_delete_needs_the_version_or_none(client: KazooClient) -> None:
    client.create("/app")
    with pytest.raises(BadVersionError):
        client.delete("/app", version=1)
    client.delete("/app", version=0)
    client.create("/app")
    client.set("/app", b"x")
    client.delete("/app")
    assert client.exists("/app") is None


def test_a_node_with_children_is_deleted_with_them_or_not_at_all(client: KazooClient) -> None:
    client.create("/app/a/b", makepath=True)
    client.create("/app-2")
    with pytest.raises(NotEmptyError):
        client.delete("/app")
    client.delete("/app", recursive=True)
    assert client.get_children("/") == ["app-2"]
    client.delete("/app", recursive=True)
    with pytest.raises(TypeError):
        client.delete("/app", recursive=1)  # type: ignore[arg-type]


@pytest.mark.long
def test_many_nodes_are_deleted_with_their_parent(client: KazooClient, db: psycopg.Connection[Any]) -> None:
    db.execute("SELECT pgsched.kv_put('app/x' || n, '1') FROM generate_series(1, 1100) AS n")
    client.delete("/app", recursive=True)
    assert client.exists("/app") is None


def test_a_node_that_is_made_again_begins_anew(client: KazooClient) -> None:
    client.create("/app")
    client.create("/app/n-", sequence=True)
    client.delete("/app", recursive=True)
    client.create("/app")
    assert client.get("/app")[1].version == 0
    assert client.create("/app/n-", sequence=True) == "/app/n-0000000000"


def test_sync_returns_the_path(client: KazooClient) -> None:
    assert client.sync("/app") == "/app"


# ---- what is refused


def test_what_the_tree_has_not_is_refused_by_name(client: KazooClient) -> None:
    calls: list[Callable[[], Any]] = [
        client.transaction, client.get_acls, client.create_async, client.reconfig,
        lambda: client.create("/app", acl=[object()]), lambda: client.add_auth("digest", "me:secret"),
        lambda: client.create("/node-", sequence=True), lambda: client.exists("/", watch=print),
        lambda: client.get_children("/", watch=print),
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(UnimplementedError):
            call()
    assert client.exists("/app") is None
    assert client.chroot == "" and client.unchroot("/app") == "/app"


@pytest.mark.parametrize(
    "name", [
        "transaction", "add_auth", "get_acls", "set_acls", "reconfig", "reconfig_async", "command", "server_version",
        "set_hosts", "create_async", "ensure_path_async", "exists_async", "get_async", "get_children_async",
        "set_async", "delete_async", "sync_async", "add_auth_async", "get_acls_async", "set_acls_async",
        "NonBlockingLease", "MultiNonBlockingLease",
    ],
)  # fmt: skip
def test_a_method_that_is_not_there_says_why(dsn: str, name: str) -> None:
    with pytest.raises(UnimplementedError, match=rf"^{name}: (there (is|are) no|use a|the database stays)"):
        getattr(KazooClient(dsn=dsn), name)("/app", 1, flag=True)


def test_a_tree_belongs_to_the_role_that_used_it_first(client: KazooClient, logins: Logins) -> None:
    client.create("/ours", b"x")
    guest = KazooClient(dsn=logins.dsn("alice"))
    guest.start()
    try:
        for call in (guest.get, guest.get_children, guest.delete, guest.exists):
            with pytest.raises(NoAuthError):
                call("/ours")
        with pytest.raises(NoAuthError):
            guest.set("/ours", b"y")
        with pytest.raises(NoAuthError):
            guest.create("/ours/mine")
        assert guest.get_children("/") == []
        guest.create("/mine")
        assert guest.get_children("/") == ["mine"]
        assert sorted(client.get_children("/")) == ["mine", "ours"]
    finally:
        guest.close()
