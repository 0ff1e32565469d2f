"""A Django model whose ids come from unalike: python django_orders.py http://127.0.0.1:8080"""

import sys

import django
from django.conf import settings

settings.configure(
    INSTALLED_APPS=["__main__"],
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
    DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
)
django.setup()

from django.db import connection, models  # noqa: E402
from unalike import Ids  # noqa: E402
from unalike.remote import RemoteStore  # noqa: E402

# At module level: each worker process of a server that forks goes on with numbers of its own.
ids = Ids(segments=RemoteStore(sys.argv[1]))
orders = ids.sequence("order")


def next_order_id() -> int:
    """Migrations name a default by its module, so it is a function and not ``orders.next``."""
    return orders.next()


class Order(models.Model):
    id = models.BigIntegerField(primary_key=True, default=next_order_id, editable=False)
    customer = models.TextField()

    class Meta:
        app_label = "__main__"


with connection.schema_editor() as editor:
    editor.create_model(Order)

# The id is known before the row is written, and a thousand rows take one statement.
first = Order(customer="first")
print("before it is saved:", first.pk)
first.save()
Order.objects.bulk_create([Order(customer=f"customer {number}") for number in range(1_000)])
print("rows:", Order.objects.count(), "distinct:", Order.objects.values("pk").distinct().count())
ids.close()
