"""A SQLAlchemy model whose ids come from unalike: python sqlalchemy_orders.py http://127.0.0.1:8080"""

import sys

from sqlalchemy import BigInteger, create_engine, func, select
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column
from unalike import Ids
from unalike.remote import RemoteStore

ids = Ids(segments=RemoteStore(sys.argv[1]))
orders = ids.sequence("order")


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"

    id: Mapped[int] = mapped_column(BigInteger, primary_key=True, default=orders.next, autoincrement=False)
    customer: Mapped[str]


engine = create_engine("sqlite://")
Base.metadata.create_all(engine)
with Session(engine) as session:
    # Rows that the program numbers itself are known before they are written.
    session.add_all(Order(id=id, customer=f"customer {id}") for id in orders.take(500))
    session.add_all(Order(customer=f"customer {number}") for number in range(500))
    session.commit()
    rows, distinct = session.execute(select(func.count(), func.count(Order.id.distinct())).select_from(Order)).one()
print("rows:", rows, "distinct:", distinct)
ids.close()
