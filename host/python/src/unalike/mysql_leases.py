from .mysql_database import Database
from .store import *
class MysqlLeases:
    def __init__(self, database: Database) -> None: ...
    def acquire(self, r: LeaseAcquire) -> Lease: raise NotImplementedError
    def extend(self, r: LeaseExtend) -> Lease: raise NotImplementedError
    def release(self, n: str, w: int, g: int, e: int) -> bool: raise NotImplementedError
    def identity(self) -> str: raise NotImplementedError
