"""The names of `retriever.encoders`; `__init__.py` imports each on first use."""

from retriever.encoders.computing import scale_to_unit as scale_to_unit
from retriever.encoders.encoder import Encoder as Encoder
from retriever.encoders.encoder import ModelChoice as ModelChoice
from retriever.encoders.families import missing_settings as missing_settings
from retriever.encoders.model_folders import find_model as find_model
from retriever.encoders.registry import is_folder_with as is_folder_with
from retriever.encoders.registry import load_encoder as load_encoder
from retriever.encoders.registry import require_trusted as require_trusted
from retriever.encoders.settings import DEFAULT_MODEL as DEFAULT_MODEL
from retriever.encoders.settings import EncoderSettings as EncoderSettings
from retriever.encoders.settings import Pooling as Pooling
from retriever.encoders.settings import encoder_keys as encoder_keys
from retriever.encoders.settings import is_automatic as is_automatic
from retriever.encoders.settings import over_model as over_model
from retriever.encoders.settings import parse_encoder as parse_encoder
from retriever.encoders.settings import resolve_layers as resolve_layers
from retriever.encoders.spec import EncoderSpec as EncoderSpec
from retriever.encoders.transformer.piece_model import TextStates as TextStates
