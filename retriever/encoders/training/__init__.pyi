"""The names of `retriever.encoders.training`; `__init__.py` imports each on first use."""

from retriever.encoders.training.model import TrainableEncoder as TrainableEncoder
from retriever.encoders.training.model import check_target as check_target
from retriever.encoders.training.model import read_training as read_training
from retriever.encoders.training.model import write_encoder as write_encoder
from retriever.encoders.training.trainer import Examples as Examples
from retriever.encoders.training.trainer import LabeledExamples as LabeledExamples
from retriever.encoders.training.trainer import ScoredExamples as ScoredExamples
from retriever.encoders.training.trainer import fitting_objective as fitting_objective
from retriever.encoders.training.trainer import paired_texts as paired_texts
from retriever.encoders.training.trainer import train_encoder as train_encoder
