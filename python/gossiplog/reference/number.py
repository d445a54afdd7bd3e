"""Numbers as JavaScript has them: one type for integers and floats. Source: wire format, "What is written"."""

from gossiplog.reference.limits import MAX_CLOCK


def normalise_float(number: float) -> int | float:
    """Return a finite float; the integer that it is, when JavaScript tells that one apart from its neighbours."""
    if abs(number) <= MAX_CLOCK and number.is_integer():
        return int(number)
    return number


def format_number(number: float) -> str:
    """Return a finite float as `String(number)` prints it. Source: ECMAScript 2023, 6.1.6.1.20, Number::toString.

    Python's `repr` finds the same shortest digits, and differs in where it puts the point and the exponent.
    """
    if number == 0:
        return "0"
    mantissa, _, exponent = repr(abs(number)).partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    # The number is 0.digits * 10^point.
    point = int(exponent or 0) + (len(whole) if whole != "0" else len(digits) - len(fraction))
    digits = digits.rstrip("0")
    if len(digits) <= point <= 21:
        text = digits.ljust(point, "0")
    elif 0 < point <= 21:
        text = f"{digits[:point]}.{digits[point:]}"
    elif -6 < point <= 0:
        text = f"0.{'0' * -point}{digits}"
    else:
        fraction = f".{digits[1:]}" if len(digits) > 1 else ""
        text = f"{digits[0]}{fraction}e{point - 1:+d}"
    return text if number > 0 else f"-{text}"
