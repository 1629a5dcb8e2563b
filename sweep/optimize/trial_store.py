"""The study as Optuna stores it: opened only by the study file that it belongs to, grown where lists of values grew."""

__all__ = ["TrialStore"]

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

    def open(self, identity: Mapping[str, Any], sampler: Sampler | None) -> "optuna.Study":
        """Open the stored study, or make it. `sampler` is given the number of stored trials.

        Raises StudyChangedError, naming each difference, where the stored study was made from something else.
        """
        import optuna

        storage = open_storage(self._url)
        with storage_faults(self._url):
            names = [
                n for n in optuna.get_all_study_names(storage) if n.rpartition(" ")[0] == self._name or n == self._name
            ]
            if not names:
                study = self._create(storage, self._name, identity)
            else:
                newest = max(names, key=lambda n: int(n.removeprefix(self._name) or 1))
                study = self._continued(optuna.load_study(study_name=newest, storage=storage), identity, len(names))
            study.sampler = sampler(len(study.get_trials(deepcopy=False))) if sampler else study.sampler
            return study

    def _create(self, storage: Any, name: str, identity: Mapping[str, Any]) -> "optuna.Study":
        import optuna

        study = optuna.create_study(storage=storage, study_name=name, direction="maximize")
        study.set_metric_names([str(identity["objective"])])
        study.set_user_attr("identity", dict(identity))
        return study

    def _continued(self, study: "optuna.Study", identity: Mapping[str, Any], count: int) -> "optuna.Study":
        old = study.user_attrs["identity"]
        changed = [name for name in identity if old.get(name) != identity[name]]
        if not changed:
            self._end_stale(study)
            return study
        if changed != ["space"] or not extends(old["space"], identity["space"]):
            raise StudyChangedError(self._refusal(changed, old, identity))
        grown = self._create(study._storage, f"{self._name} {count + 1}", identity)
        for trial in self.trials(study, "COMPLETE"):
            grown.add_trial(self._again(trial))
        if "work" in study.user_attrs:
            grown.set_user_attr("work", study.user_attrs["work"])
        return grown

    def _again(self, trial: "optuna.trial.FrozenTrial") -> "optuna.trial.FrozenTrial":
        """Return a finished trial as one of this space; without parameters where it is no point of it."""
        from optuna.trial import FixedTrial, create_trial

        configuration = Configuration.of(trial.user_attrs["settings"])
        fixed = FixedTrial(dict(self._space.params(configuration)) if self.in_space(configuration) else {})
        if fixed.params:
            self._space.suggest(fixed)  # type: ignore[arg-type]  # Optuna's own stand-in for a Trial
        return create_trial(
            value=trial.value, params=fixed.params, distributions=fixed.distributions, user_attrs=trial.user_attrs,
            constraints=trial.constraints or None,
        )  # fmt: skip

    def _end_stale(self, study: "optuna.Study") -> None:
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
