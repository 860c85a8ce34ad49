import msgspec
from hypothesis import given
from hypothesis import strategies as st

from tiffin.control.fleet.reconcile import Replace, Start, Stop, reconcile
from tiffin.types.snapshot import Deployment

deployments = st.lists(
    st.builds(
        Deployment,
        name=st.sampled_from(["chat-1-0", "chat-1-1", "chat-2-0", "tiny-1-0"]),
        model=st.just("m"),
        revision=st.just("r"),
        generation=st.sampled_from(["1", "2"]),
        socket=st.just("/s"),
        spec=st.just(msgspec.Raw(b"{}")),
        idle_s=st.sampled_from([1.0, 2.0]),
    ),
    max_size=6,
)


def named(desired: list[Deployment]) -> dict[str, Deployment]:
    wanted: dict[str, Deployment] = {}
    for what in desired:
        wanted.setdefault(what.name, what)
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
                assert running[name].generation != deployment.generation
                running[name] = deployment
            case Stop(name):
                del running[name]
    wanted = named(desired)
    assert {name: what.generation for name, what in running.items()} == {
        name: what.generation for name, what in wanted.items()
    }


@given(deployments)
def test_nothing_is_done_where_both_agree(desired: list[Deployment]) -> None:
    assert reconcile(desired, named(desired)) == ()


def test_a_new_generation_starts_before_the_old_one_stops() -> None:
    old = Deployment(name="old", model="m", revision="r", socket="", spec=msgspec.Raw(b"{}"))
    new = msgspec.structs.replace(old, name="new")
    assert reconcile([new], named([old])) == (Start("new", new), Stop("old"))
