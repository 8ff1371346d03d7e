"""The releases that can be built: the pins, and which one is in use."""

import tomllib
from pathlib import Path

import pytest

from testbed.basics.errors import InputError
from testbed.setup import kernel, releases, tor


def pins() -> dict[str, dict[str, list[str]]]:
    content: dict[str, dict[str, list[str]]] = tomllib.loads(releases.PINS.read_text())
    return content


def test_pins_are_whole() -> None:
    content = pins()
    order, series = content.pop("order"), content.pop("series")
    assert order.keys() == series.keys() == content.keys() == {"tor", "linux"}
    for project, versions in content.items():
        assert set(order[project]) <= set(versions)
        for version in versions:
            release = releases.named(project, version)
            assert release.pinned
            assert release.tarballs
            for tarball in release.tarballs:
                assert len(bytes.fromhex(tarball.sha256)) == 32
                assert tarball.names
                assert all(version in name for name in tarball.names)
                assert not tarball.debian.startswith(("/", "http"))
                assert all(address.startswith("https://") for address in tarball.upstream)


def test_every_release_of_the_order_is_of_a_series() -> None:
    """An index will list its successors."""
    for project, versions in pins()["order"].items():
        for version in versions:
            assert version.rpartition(".")[0] in releases.series(project)


def test_another_tor_is_asked_for_by_name(own_cache: Path) -> None:
    first = pins()["order"]["tor"][0]
    assert releases.chosen("tor").release == releases.named("tor", first)
    assert releases.named("tor", "0.4.5.16") != releases.named("tor", first)
    assert "0.4.5.16" in tor.TorSource(release="0.4.5.16").title
    with pytest.raises(
        InputError, match=r"tor 0\.4\.5\.1 is not pinned: there are 0\.4\.9\.11, 0\.4"
    ):
        releases.named("tor", "0.4.5.1")


def test_each_release_has_its_own_build(own_cache: Path) -> None:
    [old] = tor.tor_recipes(tor.TorSource(release="0.4.5.16"), [])
    [new] = tor.tor_recipes(tor.CHOSEN, [])
    assert (old.version, new.version) == ("0.4.5.16", pins()["order"]["tor"][0])
    assert old.key != new.key


def test_another_kernel_is_asked_for_by_the_environment(
    own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HYDRA_KERNEL", raising=False)
    assert str(kernel.choice()).endswith("is in use: the first choice")
    monkeypatch.setenv("HYDRA_KERNEL", "7.1.8")
    assert str(kernel.choice()) == "linux 7.1.8 is in use: HYDRA_KERNEL names it"
    assert {recipe.version for recipe in kernel.kernel_recipes()} == {"7.1.8"}
    monkeypatch.setenv("HYDRA_KERNEL", "6.1")
    with pytest.raises(InputError, match=r"linux 6\.1 is not pinned: there are 7\.2\.8, 7\.1\.8"):
        kernel.choice()


def test_a_series_has_patches_of_its_own_where_the_others_do_not_fit() -> None:
    general = [path.name for path in kernel.kernel_patches("7.2.8")]
    assert general == sorted(path.name for path in kernel.FOLDER.glob("*.patch"))
    for folder in filter(Path.is_dir, kernel.FOLDER.iterdir()):
        assert folder.name in releases.series("linux")
        own = kernel.kernel_patches(f"{folder.name}.1")
        assert [path.name for path in own] == sorted(path.name for path in own)
        assert set(general) <= {path.name for path in own}
        assert {path for path in own if path.parent == folder} == set(folder.glob("*.patch"))
