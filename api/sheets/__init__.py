"""XLSX workbooks, read as a stream and filled in place.

A workbook is a zip of XML parts. They are read with expat alone, in constant memory: openpyxl keeps every
shared string, fails on styles that other programs write, and loses what it does not know (images, charts)
when it saves. `splice` therefore writes into the bytes of one sheet.
"""
