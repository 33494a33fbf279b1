"""The names of `retriever.training`; `__init__.py` imports each on first use."""

from retriever.training.checkpoint import Checkpoint as Checkpoint
from retriever.training.checkpoint import require_same as require_same
from retriever.training.loop import Epoch as Epoch
from retriever.training.loop import Step as Step
from retriever.training.loop import select_epoch as select_epoch
from retriever.training.sampling import JudgedPools as JudgedPools
from retriever.training.sampling import Reservoir as Reservoir
from retriever.training.sampling import TrainingSet as TrainingSet
from retriever.training.settings import CrossTrainingSettings as CrossTrainingSettings
from retriever.training.settings import EncoderTrainingSettings as EncoderTrainingSettings
from retriever.training.settings import HeadSettings as HeadSettings
from retriever.training.settings import HeadTrainingSettings as HeadTrainingSettings
from retriever.training.settings import NegativeSource as NegativeSource
from retriever.training.settings import Objective as Objective
from retriever.training.settings import SamplingSettings as SamplingSettings
