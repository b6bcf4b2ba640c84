"""PyBullet's walkers, stepped with few calls into PyBullet: the same numbers, bit for bit, sooner.

The environment queries PyBullet for one joint and one link after the other, and that takes longer than its
physics. Here all joints are queried at once, and all links, and all contacts. Arithmetic is left as it is,
operation by operation: legs are chaotic, and the last bit of an observation decides an episode.
"""

from typing import Any

import gymnasium
import numpy as np
import pybullet
from pybullet_envs_gymnasium.gym_locomotion_envs import WalkerBaseBulletEnv
from pybullet_envs_gymnasium.robot_locomotors import WalkerBase

_Step = tuple[np.ndarray, float, bool, bool, dict[str, Any]]


def quicken(env: gymnasium.Env) -> None:
    """Step an environment by `QuickStep`, if it is a walker that steps as walkers usually do."""
    walker = env.unwrapped
    if not isinstance(walker, WalkerBaseBulletEnv):
        return
    kind, robot = type(walker), type(walker.robot)
    usual = (
        kind.step is WalkerBaseBulletEnv.step
        and robot.calc_state is WalkerBase.calc_state
        and robot.apply_action is WalkerBase.apply_action
        and robot.calc_potential is WalkerBase.calc_potential
    )
    if usual:
        walker.step = QuickStep(walker)


class QuickStep:
    """`WalkerBaseBulletEnv.step` of one environment."""

    def __init__(self, walker: WalkerBaseBulletEnv):
        self._walker = walker
        self._robot = walker.robot
        self._known = 0

    def __call__(self, action: np.ndarray) -> _Step:
        """Step as the environment does, whose source explains the reward."""
        walker, robot = self._walker, self._robot
        if self._known != len(robot.parts):
            self._look()
        assert np.isfinite(action).all()
        torques = self._power * np.clip(action, -1, 1)
        pybullet.setJointMotorControlArray(
            self._body,
            self._joints,
            pybullet.TORQUE_CONTROL,
            forces=torques.tolist(),
            physicsClientId=self._client,
        )
        pybullet.stepSimulation(self._client)
        observation = self._sense()
        walker._alive = float(
            robot.alive_bonus(observation[0] + robot.initial_z, robot.body_rpy[1])
        )
        done = bool(walker._isDone()) or not np.isfinite(observation).all()
        before, walker.potential = walker.potential, robot.calc_potential()
        self._feel_ground()
        electricity = walker.electricity_cost * _mean(np.abs(action * robot.joint_speeds))
        electricity += walker.stall_torque_cost * _mean(np.square(action))
        walker.rewards = [
            walker._alive,
            float(walker.potential - before),
            electricity,
            float(walker.joints_at_limit_cost * robot.joints_at_limit),
            0.0,  # feet that collide, which cost nothing
        ]
        reward = sum(walker.rewards)
        walker.reward += reward
        return observation, reward, done, False, {}

    def _look(self) -> None:
        """Note what the robot is made of; its first episode adds the ground to its parts."""
        robot = self._robot
        parts, joints = list(robot.parts.values()), robot.ordered_joints
        self._known = len(parts)
        self._client = self._walker._p._client
        self._body = robot.robot_body.bodies[robot.robot_body.bodyIndex]
        mine = [part.bodies[part.bodyIndex] == self._body for part in parts]
        numbers = [part.bodyPartIndex for part in parts]
        self._rows = [row for row, link in enumerate(numbers) if mine[row] and link >= 0]
        self._links = [numbers[row] for row in self._rows]
        self._base_row = next(
            (row for row, link in enumerate(numbers) if mine[row] and link < 0), None
        )
        self._torso = robot.robot_body.bodyPartIndex
        self._positions = np.array([part.current_position() for part in parts])
        self._joints = [joint.jointIndex for joint in joints]
        self._lowest = np.array([joint.lowerLimit for joint in joints])
        self._range = np.array([joint.upperLimit - joint.lowerLimit for joint in joints])
        self._power = np.array([robot.power * joint.power_coef for joint in joints])
        self._feet = [foot.bodyPartIndex for foot in robot.feet]

    def _sense(self) -> np.ndarray:
        """Compute `WalkerBase.calc_state`, with all that it leaves in the robot."""
        robot = self._robot
        joints = self._read_joints()
        robot.joint_speeds = joints[1::2]
        robot.joints_at_limit = np.count_nonzero(np.abs(joints[0::2]) > 0.99)
        position, orientation, velocity = self._read_links()
        x, y = self._positions[:, 0], self._positions[:, 1]
        robot.body_xyz = (x.mean(), y.mean(), position[2])
        robot.body_real_xyz = np.array(position)
        robot.body_rpy = pybullet.getEulerFromQuaternion(orientation)
        roll, pitch, yaw = robot.body_rpy
        to_go = (
            robot.walk_target_y - robot.body_xyz[1],
            robot.walk_target_x - robot.body_xyz[0],
        )
        robot.walk_target_theta = np.arctan2(*to_go)
        robot.walk_target_dist = np.linalg.norm(to_go)
        angle = robot.walk_target_theta - yaw
        cos, sin = np.cos(-yaw), np.sin(-yaw)
        speeds = np.dot(np.array([[cos, -sin, 0], [sin, cos, 0], [0, 0, 1]]), np.array(velocity))
        body = np.array(
            [
                position[2] - robot.initial_z,
                np.sin(angle),
                np.cos(angle),
                *(0.3 * speeds),
                roll,
                pitch,
            ],
            np.float32,
        )
        return np.clip(np.concatenate([body, joints, robot.feet_contact]), -5, 5)

    def _read_joints(self) -> np.ndarray:
        """Read position in [-1, 1] and speed of each joint, one after the other."""
        states = pybullet.getJointStates(self._body, self._joints, self._client)
        positions, speeds = np.array([state[:2] for state in states]).T
        scaled = np.empty((len(states), 2), np.float32)
        scaled[:, 0] = 2 * (positions - self._lowest) / self._range - 1.0
        scaled[:, 1] = 0.1 * speeds
        return scaled.reshape(-1)

    def _read_links(self) -> tuple[Any, Any, Any]:
        """Read the positions of all links; return position, orientation and velocity of the torso."""
        body, client = self._body, self._client
        links = pybullet.getLinkStates(body, self._links, True, False, client)
        self._positions[self._rows] = [link[0] for link in links]
        if self._base_row is not None:
            base = pybullet.getBasePositionAndOrientation(body, client)
            self._positions[self._base_row] = base[0]
        if self._torso < 0:
            return *base, pybullet.getBaseVelocity(body, client)[0]
        torso = links[self._links.index(self._torso)]
        return torso[0], torso[1], torso[6]

    def _feel_ground(self) -> None:
        """Note which feet touch the ground; observations show it in the next step only."""
        contacts = pybullet.getContactPoints(self._body, physicsClientId=self._client)
        touching = {
            mine
            for _, _, other, mine, theirs, *_ in contacts
            if (other, theirs) in self._walker.ground_ids
        }
        self._robot.feet_contact[:] = [foot in touching for foot in self._feet]


def _mean(values: np.ndarray) -> float:
    """Compute `values.mean()` in half the time."""
    return float(np.add.reduce(values) / len(values))
