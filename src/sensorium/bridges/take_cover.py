"""DoomTakeCover, the second world of the AttentionAgent paper: step aside from fireballs, for a minute.

    gym:sensorium/TakeCover-v0?variant=walls&width=160

Monsters along one wall throw balls at the agent, which moves along the other, one tic (1/35 s) a step, and
earns 1 for each that it lives; an episode ends after 2,100. What agents see is the screen of ViZDoom reduced
to 96 x 96 pixels, with antialiasing. The settings are those that the authors' agents were trained with, as
far as their scores tell: skill 4 (their configuration asks for 5, which ViZDoom took for 4 then), RGB (it
says BGR, but red came first), and the state of the player at the bottom of the screen.

Variants, as in the paper (section 5.5): `walls` of nearly four times the height, `floor` of another texture
(`flat=GRASS1` for any of Freedoom's), and `text` that hovers on the screen (`text=HELLO` for others). Beyond
the paper, all that is neither monster nor ball may have another `colour` in each episode, or be `noise`. For
training there is `drawn`: another floor and other walls in each episode, but never those of the paper's
variants, and in every second one text of other letters, colours and places. Maps are made from the one that
comes with ViZDoom.

It comes with the extra `doom`.
"""

import contextlib
import functools
import itertools
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium import spaces
from jaxtyping import Bool, Float, UInt8
from PIL import Image

from sensorium.bridges.hovering_text import HoveringText, Screen, drawn_text
from sensorium.bridges.wad import Changes, map_name, read_wad, with_settings
from sensorium.errors import ConfigError, did_you_mean, needs
from sensorium.gymnasium_ids import TAKE_COVER_STEPS

SIZE = 96
"""Pixels of a picture, each way."""
OF_THE_PAPER = ("plain", "walls", "floor", "text")
_BACKGROUNDS = ("colour", "noise")
LOOKS = (*OF_THE_PAPER, *_BACKGROUNDS)
"""What agents are tested with."""
VARIANTS = (*LOOKS, "drawn")
WIDTHS = (160, 320, 640)
"""Pixels of the screen before it is reduced; the authors' agents saw 640."""
FLOOR, CEILING = "CRATOP1", 104
"""Of the map as it is."""
OTHER_FLOOR, OTHER_CEILING = "CRATOP2", 404
"""Of the paper's variants."""
DRAWN_CEILINGS = (104, 154, 204, 254, 304)
"""Of the variant `drawn`."""

_SKILL, _START, _TICS_PER_SECOND = 4, 14, 35
_THRESHOLD = 1 / 3  # of an action, beyond which the agent moves
_BALL, _MONSTER, _PLAYER = "DoomImpBall", "DoomImp", "DoomPlayer"
_SKY = "F_SKY1"  # a flat that is no texture
_STILL = 0.1  # units a tic; a ball that is slower has burst
_ADDED = 0.2  # of full brightness, at most, to each channel of another colour
_VIEW = 168 / 200  # of the screen's height; below it is the state of the player
_BOX = 0.30, 0.04, 0.70, 0.16  # of hovering text; the paper says no more than "on the top portion"

Picture = UInt8[np.ndarray, "96 96 3"]


class TakeCover(gymnasium.Env):
    """The game.

    An action is a number from -1 to 1: below -1/3 the agent moves to the left, above 1/3 to the right. With
    `discrete`, it is one of three: nothing, left, right.

    `info` has, for experts: the last `action`, as one of three; the `player`, (x, y, velocity along y); the
    `balls` in flight, rows of (x, y, velocity along x, velocity along y, number of the object), in units of
    the map and of a tic; the `monsters`, rows of (x, y). To the left, y grows. With `boxes`, it has where
    balls are to be seen: top, left, bottom and right of each in pixels of the picture.
    """

    metadata: ClassVar[dict[str, Any]] = {
        "render_modes": ["rgb_array"],
        "render_fps": _TICS_PER_SECOND,
        "variants": LOOKS,
    }

    def __init__(
        self,
        variant: Any = "plain",
        flat: Any = OTHER_FLOOR,
        text: Any = "TAKE COVER",
        width: Any = 640,
        discrete: Any = False,
        boxes: Any = False,
        frame_skip: Any = 1,
        render_mode: str | None = None,
    ):
        """Start ViZDoom.

        Args:
            variant: One of `VARIANTS`.
            flat: Texture of the floor in the variant `floor`.
            text: What hovers on the screen in the variant `text`.
            width: Pixels of the screen, of `WIDTHS`; smaller is quicker, and looks a little different.
            discrete: Take one of three actions, instead of a number.
            boxes: Say in `info` where balls are to be seen.
            frame_skip: Tics that each action is held for; the reward is 1 for each of them.
            render_mode: None, or `"rgb_array"` for the whole screen.

        Raises:
            MissingExtraError: ViZDoom is not installed.
            UnknownNameError: There is no such variant.
            ConfigError: The screen cannot be of that width, there is no such flat, an action cannot be held
                for so long, or what is true or false is something else.
        """
        if variant not in VARIANTS:
            raise did_you_mean("variant of TakeCover", str(variant), VARIANTS)
        if type(width) is not int or width not in WIDTHS:
            raise ConfigError(
                f"TakeCover is drawn {', '.join(map(str, WIDTHS))} pixels wide, not {width!r}."
            )
        for name, said in (("discrete", discrete), ("boxes", boxes)):
            if not isinstance(said, bool):
                raise ConfigError(f"TakeCover: {name} is true or false, not {said!r}.")
        if type(frame_skip) is not int or not 1 <= frame_skip <= TAKE_COVER_STEPS:
            raise ConfigError(
                f"TakeCover holds each action for 1 to {TAKE_COVER_STEPS} tics, not {frame_skip!r}."
            )
        self.observation_space = spaces.Box(0, 255, (SIZE, SIZE, 3), np.uint8)
        self.action_space: spaces.Space = (
            spaces.Discrete(3) if discrete else spaces.Box(-1.0, 1.0, (1,), np.float32)
        )
        self.render_mode, self._discrete, self._frame_skip = render_mode, discrete, frame_skip
        self.metadata = {
            **self.metadata,
            "render_fps": _TICS_PER_SECOND / frame_skip,
            "max_episode_steps": -(-TAKE_COVER_STEPS // frame_skip),
        }
        self._text = HoveringText(str(text), _BOX) if variant == "text" else None
        self._variant = variant
        self._added = np.zeros(3)
        maps = _maps(variant, str(flat).upper())
        self._num_maps = len(maps)
        self._boxes_wanted = boxes
        with tempfile.TemporaryDirectory(prefix="take-cover-") as folder:
            path = Path(folder) / "take_cover.wad"
            path.write_bytes(with_settings(packaged_map().read_bytes(), *maps))
            labels = boxes or variant in _BACKGROUNDS
            self._game = _open(path, width, labels, folder)
        self._screen = np.zeros((self._game.get_screen_height(), width, 3), np.uint8)
        self._info: dict[str, Any] = {}

    @property
    def option_names(self) -> tuple[str, ...]:
        """What each action does."""
        return ("nothing", "left", "right")

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Picture, dict[str, Any]]:
        """Start an episode."""
        super().reset(seed=seed)
        self._game.set_seed(int(self.np_random.integers(2**31)))
        if self._num_maps > 1:
            self._game.set_doom_map(map_name(1 + int(self.np_random.integers(self._num_maps))))
        if self._variant == "drawn":
            self._text = drawn_text(self.np_random) if self.np_random.random() < 0.5 else None
        elif self._variant == "colour":
            self._added = 255 * self.np_random.uniform(-_ADDED, _ADDED, 3)
        self._game.new_episode()
        self._look(0)
        return self._picture(), self._info

    def step(self, action: Any) -> tuple[Picture, float, bool, bool, dict[str, Any]]:
        """Hold an action for `frame_skip` tics."""
        if self._discrete:
            left, right = action == 1, action == 2
        else:
            number = float(np.reshape(action, ()))
            left, right = number < -_THRESHOLD, number > _THRESHOLD
        reward = self._game.make_action([bool(right), bool(left)], self._frame_skip)
        dead = self._game.is_player_dead()
        over = self._game.is_episode_finished() and not dead
        if not (dead or over):
            self._look(1 if left else 2 if right else 0)
        return self._picture(), reward, dead, over, self._info

    def render(self) -> Screen:
        """Return the whole screen."""
        return self._screen

    def close(self) -> None:
        """End ViZDoom."""
        self._game.close()

    def _look(self, action: int) -> None:
        """Note what there is, and what was done; after an end there is nothing new."""
        state = self._game.get_state()
        self._screen = state.screen_buffer
        if self._variant in _BACKGROUNDS:
            # Floor and ceiling have a label too, which is of no object
            objects = np.isin(state.labels_buffer, [each.value for each in state.labels])
            self._screen = self._before_another_background(objects)
        if self._text:
            self._screen = self._text.on(self._screen)
        balls, monsters, player = [], [], (0.0, 0.0, 0.0)
        for each in state.objects:
            x, y, along = each.position_x, each.position_y, each.velocity_y
            if each.name == _BALL and abs(each.velocity_x) > _STILL:
                balls.append((x, y, each.velocity_x, along, each.id))
            elif each.name == _MONSTER:
                monsters.append((x, y))
            elif each.name == _PLAYER:
                player = (x, y, along)
        self._info = {
            "action": action,
            "player": np.array(player),
            "balls": np.array(balls).reshape(-1, 5),
            "monsters": np.array(monsters).reshape(-1, 2),
        }
        if self._boxes_wanted:
            self._info["boxes"] = self._boxes(state.labels)

    def _before_another_background(self, objects: Bool[np.ndarray, "height width"]) -> Screen:
        """Change the colour of all that is no object, or make noise of it."""
        height, width = objects.shape
        if self._variant == "noise":
            # As coarse as pictures are, whose pixels would be grey otherwise
            noise = self.np_random.integers(0, 256, (SIZE, SIZE, 3), np.uint8)
            enlarged = Image.fromarray(noise).resize((width, height), Image.Resampling.NEAREST)
            behind = np.asarray(enlarged)
        else:
            behind = (self._screen + self._added).clip(0, 255).round().astype(np.uint8)
        is_behind = ~objects & (np.arange(height) < int(height * _VIEW))[:, None]
        return np.where(is_behind[..., None], behind, self._screen)

    def _boxes(self, labels: Any) -> Float[np.ndarray, "balls 4"]:
        """Return top, left, bottom and right of each ball that is to be seen, in pixels of the picture."""
        height, width, _ = self._screen.shape
        rows = [
            (each.y, each.x, each.y + each.height, each.x + each.width)
            for each in labels
            if each.object_name == _BALL
        ]
        scale = np.array([SIZE / height, SIZE / width] * 2)
        return np.array(rows, float).reshape(-1, 4) * scale

    def _picture(self) -> Picture:
        shown = Image.fromarray(self._screen)
        return np.asarray(shown.resize((SIZE, SIZE), Image.Resampling.BILINEAR))


def _maps(variant: str, flat: str) -> list[Changes]:
    """Say what is changed in each map of a variant."""
    if variant == "walls":
        return [_change(FLOOR, OTHER_CEILING)]
    if variant == "floor":
        if flat not in _flats():
            raise did_you_mean("flat of Freedoom", flat, _flats())
        return [_change(flat, CEILING)]
    if variant == "drawn":
        floors = [each for each in _flats() if each not in (OTHER_FLOOR, _SKY)]
        return [_change(*each) for each in zip(floors, itertools.cycle(DRAWN_CEILINGS))]
    return [{}]


def _change(floor: str, ceiling: int) -> Changes:
    return {
        "texturefloor": (f'"{FLOOR}"', f'"{floor}"'),
        "heightceiling": (CEILING, ceiling),
    }


def _open(path: Path, width: int, labels: bool, folder: str) -> Any:
    """Start a game with a map; what ViZDoom leaves behind goes to a folder."""
    with needs("doom", "TakeCover"):
        import vizdoom
    game = vizdoom.DoomGame()
    game.set_doom_scenario_path(str(path))
    game.set_doom_map(map_name(1))
    game.set_doom_config_path(os.devnull)
    game.set_doom_skill(_SKILL)
    game.set_screen_resolution(getattr(vizdoom.ScreenResolution, f"RES_{width}X{width * 3 // 4}"))
    game.set_screen_format(vizdoom.ScreenFormat.RGB24)
    game.set_render_hud(True)
    game.set_render_crosshair(False)
    game.set_render_weapon(False)
    game.set_render_decals(False)
    game.set_render_particles(False)
    game.set_objects_info_enabled(True)
    game.set_labels_buffer_enabled(labels)
    game.set_living_reward(1)
    game.set_episode_start_time(_START)
    game.set_episode_timeout(TAKE_COVER_STEPS)
    game.set_available_buttons([vizdoom.Button.MOVE_RIGHT, vizdoom.Button.MOVE_LEFT])
    game.set_available_game_variables([vizdoom.GameVariable.HEALTH])
    game.set_sound_enabled(False)
    game.set_window_visible(False)
    with _working_in(folder):
        game.init()
    return game


@contextlib.contextmanager
def _working_in(folder: str) -> Iterator[None]:
    """Work in another folder for a while: ViZDoom leaves a folder in the one where it starts."""
    before = os.getcwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def packaged_map() -> Path:
    """Return the map that comes with ViZDoom, the authors' to the byte."""
    return _packaged("scenarios") / "take_cover.wad"


def _packaged(*parts: str) -> Path:
    with needs("doom", "TakeCover"):
        import vizdoom
    return Path(vizdoom.__file__).parent.joinpath(*parts)


@functools.cache
def _flats() -> tuple[str, ...]:
    """List the floor textures of Freedoom, which comes with ViZDoom."""
    lumps = read_wad(_packaged("freedoom2.wad").read_bytes())
    names = [name for name, _ in lumps]
    between = lumps[names.index("F_START") + 1 : names.index("F_END")]
    return tuple(name for name, texture in between if texture)  # the others are marks
