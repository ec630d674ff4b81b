"""pgsched's own recipes, with their defaults: a lock by `app.lock`, on the App's own connections."""

from __future__ import annotations

from bench.peers.recipes.verbs import Coordinator, Lock, main
from bench.peers.record import dsn
from pgsched import App
from pgsched.recipes.lock import Lock as PgschedLock


class OurLock(Lock):
    """A lock."""

    def __init__(self, lock: PgschedLock) -> None:
        self.lock = lock

    def acquire(self) -> int:
        return self.lock.acquire().fence

    def release(self) -> None:
        self.lock.release()


class Pgsched(Coordinator):
    """pgsched."""

    def open(self) -> None:
        self.app = App("bench", dsn=dsn())
        self.idle: list[PgschedLock] = []

    def lock(self, name: str) -> Lock:
        return OurLock(self.app.lock(name))

    def hold(self, name: str, n: int) -> None:
        self.idle = [self.app.lock(f"{name}/{i}").acquire() for i in range(n)]

    def held(self, name: str) -> int:
        return sum(1 for lock in self.idle if lock.is_held and lock.line()[0].fence == lock.fence)

    def close(self) -> None:
        self.app.close()


if __name__ == "__main__":
    main(Pgsched())
