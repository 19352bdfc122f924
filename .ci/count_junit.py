"""Prints "passed failed skipped" for a JUnit file of ctest."""
import sys
import xml.etree.ElementTree as ET

passed = failed = skipped = 0
for case in ET.parse(sys.argv[1]).getroot().iter("testcase"):
    status = case.get("status")
    if case.find("failure") is not None or status == "fail":
        failed += 1
    elif case.find("skipped") is not None or status in ("notrun", "disabled"):
        skipped += 1
    else:
        passed += 1
print(passed, failed, skipped)
