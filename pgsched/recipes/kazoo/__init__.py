"""The recipes under the names of Kazoo: to move a program from ZooKeeper, change its imports and its client.

docs/how-to/kazoo.md shows how, and what differs.
"""

from pgsched.recipes.kazoo.barriers import Barrier as Barrier
from pgsched.recipes.kazoo.barriers import DoubleBarrier as DoubleBarrier
from pgsched.recipes.kazoo.client import KazooClient as KazooClient
from pgsched.recipes.kazoo.counters import Counter as Counter
from pgsched.recipes.kazoo.exceptions import BadVersionError as BadVersionError
from pgsched.recipes.kazoo.exceptions import CancelledError as CancelledError
from pgsched.recipes.kazoo.exceptions import ConnectionClosedError as ConnectionClosedError
from pgsched.recipes.kazoo.exceptions import ConnectionLoss as ConnectionLoss
from pgsched.recipes.kazoo.exceptions import KazooException as KazooException
from pgsched.recipes.kazoo.exceptions import KazooTimeoutError as KazooTimeoutError
from pgsched.recipes.kazoo.exceptions import LockTimeout as LockTimeout
from pgsched.recipes.kazoo.exceptions import NodeExistsError as NodeExistsError
from pgsched.recipes.kazoo.exceptions import NoNodeError as NoNodeError
from pgsched.recipes.kazoo.exceptions import NotEmptyError as NotEmptyError
from pgsched.recipes.kazoo.exceptions import SessionExpiredError as SessionExpiredError
from pgsched.recipes.kazoo.locks import Election as Election
from pgsched.recipes.kazoo.locks import Lock as Lock
from pgsched.recipes.kazoo.locks import ReadLock as ReadLock
from pgsched.recipes.kazoo.locks import Semaphore as Semaphore
from pgsched.recipes.kazoo.locks import WriteLock as WriteLock
from pgsched.recipes.kazoo.parties import Party as Party
from pgsched.recipes.kazoo.parties import ShallowParty as ShallowParty
from pgsched.recipes.kazoo.partitioner import PartitionState as PartitionState
from pgsched.recipes.kazoo.partitioner import SetPartitioner as SetPartitioner
from pgsched.recipes.kazoo.queues import LockingQueue as LockingQueue
from pgsched.recipes.kazoo.queues import Queue as Queue
from pgsched.recipes.kazoo.retry import KazooRetry as KazooRetry
from pgsched.recipes.kazoo.states import EventType as EventType
from pgsched.recipes.kazoo.states import KazooState as KazooState
from pgsched.recipes.kazoo.states import KeeperState as KeeperState
from pgsched.recipes.kazoo.states import WatchedEvent as WatchedEvent
from pgsched.recipes.kazoo.states import ZnodeStat as ZnodeStat
from pgsched.recipes.kazoo.watchers import ChildrenWatch as ChildrenWatch
from pgsched.recipes.kazoo.watchers import DataWatch as DataWatch
