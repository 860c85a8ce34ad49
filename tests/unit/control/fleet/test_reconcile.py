import msgspec
from hypothesis import given
from hypothesis import strategies as st

from tiffin.control.fleet.reconcile import Replace, Start, Stop, reconcile
from tiffin.types.paths import replica_name
from tiffin.types.snapshot import Deployment

deployments = st.lists(
    st.builds(
        Deployment,
        model=st.sampled_from(["chat", "tiny", "big"]),
        revision=st.sampled_from(["sha256:0123456789", "sha256:abcdef0123"]),
        socket=st.just("/s"),
        spec=st.sampled_from([msgspec.Raw(b"{}"), msgspec.Raw(b'{"slots":2}')]),
        threads=st.integers(min_value=1, max_value=2),
    ),
    max_size=6,
)


def named(desired: list[Deployment]) -> dict[str, Deployment]:
    wanted: dict[str, Deployment] = {}
    for what in desired:
        wanted.setdefault(replica_name(what.model, what.revision), what)
    return wanted


@given(deployments, deployments)
def test_doing_what_it_says_makes_what_runs_what_is_desired(
    before: list[Deployment], desired: list[Deployment]
) -> None:
    running = named(before)
    for action in reconcile(desired, dict(running)):
        match action:
            case Start(name, deployment):
                assert name not in running
                running[name] = deployment
            case Replace(name, deployment):
                assert running[name] != deployment
                running[name] = deployment
            case Stop(name):
                del running[name]
    assert running == named(desired)


@given(deployments)
def test_nothing_is_done_where_both_agree(desired: list[Deployment]) -> None:
    assert reconcile(desired, named(desired)) == ()


def test_a_new_revision_starts_before_the_old_one_stops() -> None:
    old = Deployment(model="chat", revision="sha256:00000000", socket="", spec=msgspec.Raw(b"{}"))
    new = msgspec.structs.replace(old, revision="sha256:11111111")
    actions = reconcile([new], named([old]))
    assert actions == (Start("r-chat-11111111", new), Stop("r-chat-00000000"))
