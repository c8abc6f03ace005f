import unittest

from durations import seconds


class Durations(unittest.TestCase):
    def test_one_unit(self) -> None:
        self.assertEqual(seconds("90s"), 90)

    def test_several_units(self) -> None:
        self.assertEqual(seconds("1h30m"), 5_400)

    def test_nothing(self) -> None:
        with self.assertRaises(ValueError):
            seconds("")

    def test_a_typing_error(self) -> None:
        with self.assertRaises(ValueError):
            seconds("1h 30 mins")
