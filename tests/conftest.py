"""What holds for every test."""

import pytest
from hypothesis import settings

# How long an example takes says more about the machine's other work than about the code.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep what shares a server on one worker: since pytest 9.2 xdist's own mark is lost.

    Its scheduler reads a group from the end of a test's id.
    """
    if not getattr(config.option, "loadgroup", False):
        return
    for item in items:
        groups = {str(mark.args[0]) for mark in item.iter_markers("xdist_group")}
        suffix = "@" + "_".join(sorted(groups))
        if groups and not item.nodeid.endswith(suffix):
            item._id = type(item.id).parse(item.nodeid + suffix)
