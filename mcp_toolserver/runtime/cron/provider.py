"""Provides the schedules of the caller. `app/schedules.py` runs them."""

from mcp_toolserver.runtime.cron.schedules import OwnerSchedules
from mcp_toolserver.runtime.providers import Provider, ProviderContext
from mcp_toolserver.stores.cron import StoredSchedules


def provider(context: ProviderContext) -> Provider:
    """See `runtime/providers.py`."""
    store = StoredSchedules(context.database)
    return Provider(provide=lambda request: OwnerSchedules(store=store, calls=request.calls))
