"""The study as Optuna stores it: opened only by the study file that it belongs to, grown where lists of values grew."""

__all__ = ["TrialStore"]

import re
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sweep.errors import SettingsError, StudyChangedError
from sweep.optimize.space import Space, difference, extends
from sweep.optimize.storage import open_storage, storage_faults
from sweep.retrieval.configuration import Configuration

if TYPE_CHECKING:
    import optuna

Sampler = Callable[[int], "optuna.samplers.BaseSampler"]


class TrialStore:
    """Trials of one study. Optuna's name of it is the study's, with a number from the second on.

    Optuna holds the choices of a parameter fixed within a study; so where a list has grown, a new one takes over the
    finished trials, under the next number.
    """

    def __init__(self, url: str, name: str, space: Space, folder: Path) -> None:
        self._url, self._name, self._space, self._folder = url, name, space, folder

    def exists(self) -> bool:
        """Tell whether there may be stored trials; creates nothing."""
        return not self._url.startswith("sqlite:///") or Path(self._url.removeprefix("sqlite:///")).exists()

    def open(self, identity: Mapping[str, Any], sampler: Sampler) -> "optuna.Study":
        """Open the stored study, or make it. `sampler` is given the number of stored trials.

        Raises StudyChangedError, naming each difference, where the stored study was made from something else.
        """
        storage = open_storage(self._url)
        with storage_faults(self._url):
            newest, count = self._newest(storage)
            if newest is None:
                study = self._create(storage, self._name, identity)
            else:
                study = self._continued(newest, identity, count)
            study.sampler = sampler(len(study.get_trials(deepcopy=False)))
            return study

    def read(self, identity: Mapping[str, Any]) -> "optuna.Study | None":
        """Return the stored study without writing to it, or None; a run that is going on is not disturbed.

        Raises StudyChangedError as `open`.
        """
        storage = open_storage(self._url)
        with storage_faults(self._url):
            newest, _ = self._newest(storage)
            if newest is not None:
                self._changed(newest, identity)
            return newest

    def _newest(self, storage: Any) -> tuple["optuna.Study | None", int]:
        """Return the study under its greatest number, and how many there are."""
        import optuna

        ours = re.compile(re.escape(self._name) + r"(?: (\d+))?")
        found = [m for n in optuna.get_all_study_names(storage) if (m := ours.fullmatch(n))]
        if not found:
            return None, 0
        newest = max(found, key=lambda m: int(m[1] or 1))
        study = optuna.load_study(study_name=newest[0], storage=storage)
        if "identity" not in study.user_attrs:
            raise StudyChangedError(
                f"the storage holds an Optuna study {newest[0]!r} that is not of sweep; give the study file another "
                f"name (study: …), or another storage"
            )
        return study, len(found)

    def _create(self, storage: Any, name: str, identity: Mapping[str, Any]) -> "optuna.Study":
        import optuna
        from optuna.exceptions import ExperimentalWarning

        study = optuna.create_study(storage=storage, study_name=name, direction="maximize")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ExperimentalWarning)  # the dashboard shows the name; nothing depends on it
            study.set_metric_names([str(identity["objective"])])
        study.set_user_attr("identity", dict(identity))
        return study

    def _continued(self, study: "optuna.Study", identity: Mapping[str, Any], count: int) -> "optuna.Study":
        grown_or_new = self._changed(study, identity)
        self.end_stale(study)
        if not grown_or_new:
            return study
        grown = self._create(study._storage, f"{self._name} {count + 1}", identity)
        for trial in self.trials(study, "COMPLETE"):
            grown.add_trial(self._again(trial))
        if "work" in study.user_attrs:
            grown.set_user_attr("work", study.user_attrs["work"])
        return grown

    def _changed(self, study: "optuna.Study", identity: Mapping[str, Any]) -> bool:
        """Tell whether the space has grown, or all is new. Raises StudyChangedError where anything else is different.

        Models and retrievers may come with the space or the baseline, and go; one that has stayed must be the same.
        """
        old = study.user_attrs["identity"]
        changed = [name for name in identity if old.get(name) != identity[name]]
        for kind in ("models", "retrievers"):
            if all(identity[kind].get(name, same) == same for name, same in old[kind].items()):
                changed = [name for name in changed if name != kind]
        if not changed:
            return False
        if not self.trials(study, "COMPLETE"):  # nothing was finished: nothing is there to protect
            return True
        if changed != ["space"] or not extends(old["space"], identity["space"]):
            raise StudyChangedError(self._refusal(changed, old, identity))
        return True

    def _again(self, trial: "optuna.trial.FrozenTrial") -> "optuna.trial.FrozenTrial":
        """Return a finished trial as one of this space; without parameters where it is no point of it."""
        from optuna.trial import FixedTrial, create_trial

        configuration = Configuration.of(trial.user_attrs["settings"])
        params = dict(self._space.params(configuration)) if self.in_space(configuration) else {}
        fixed = FixedTrial(params)
        if params:
            self._space.suggest(fixed)  # type: ignore[arg-type]  # Optuna's own stand-in for a Trial
        return create_trial(
            value=trial.value, params=fixed.params, distributions=fixed.distributions, user_attrs=trial.user_attrs,
            constraints=trial.constraints or None,
        )  # fmt: skip

    def end_stale(self, study: "optuna.Study") -> None:
        """Fail trials that a killed run left running; the caller holds the study alone."""
        from optuna.trial import TrialState

        for trial in self.trials(study, "RUNNING"):
            study.tell(trial.number, state=TrialState.FAIL)

    def finished(self, study: "optuna.Study") -> dict[str, Configuration]:
        """Return the configurations of complete trials with a finite value, by id."""
        found: dict[str, Configuration] = {}
        for trial in self.trials(study, "COMPLETE"):
            if trial.value is not None and np.isfinite(trial.value):
                found.setdefault(trial.user_attrs["configuration"], Configuration.of(trial.user_attrs["settings"]))
        return found

    def trials(self, study: "optuna.Study", state: str) -> list["optuna.trial.FrozenTrial"]:
        """Return the trials in a state."""
        from optuna.trial import TrialState

        with storage_faults(self._url):
            return study.get_trials(deepcopy=False, states=(TrialState[state],))

    def in_space(self, configuration: Configuration) -> bool:
        """Tell whether a configuration is a point of the space."""
        try:
            self._space.params(configuration)
        except SettingsError:
            return False
        return True

    def _refusal(self, changed: list[str], old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
        said = []
        for name in changed:
            if name == "space":
                said += difference(old["space"], new["space"])
            elif name in ("documents", "queries", "labels"):
                said.append(f"the {name} are not the ones it was made from")
            else:
                said.append(f"{name}: was {old.get(name)}, is {new[name]}")
        return (
            f"study {self._name!r} in {self._folder} was made from something else: {'; '.join(said)}. "
            f"Give the study file another name (study: …) to keep both, or remove {self._folder} to start again"
        )
