"""Item queues: producers put values, and consumers hold them until they are consumed."""
