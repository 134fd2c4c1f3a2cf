import unittest

from bill import describe, split, with_tip


class BillTest(unittest.TestCase):
    def test_a_tip_is_rounded_up(self):
        self.assertEqual(with_tip(1001, 10), 1102)

    def test_a_split_loses_no_cent(self):
        self.assertEqual(split(1000, 3), [334, 333, 333])
        self.assertEqual(sum(split(1999, 7)), 1999)

    def test_amounts_have_two_digits(self):
        self.assertEqual(describe(300, 2, 3), "1.02, 1.02, 1.02")


if __name__ == "__main__":
    unittest.main()
