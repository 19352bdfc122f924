"""Reads the lines of a streamed answer with the loop of SageMaker's example notebooks."""
import io


class LineIterator:
    """Iterates over the lines of a stream whose parts may end anywhere. As in the notebooks, the last line must end with a newline."""

    def __init__(self, stream):
        self.parts, self.buffer, self.at = iter(stream), io.BytesIO(), 0

    def __iter__(self):
        return self

    def __next__(self):
        while True:
            self.buffer.seek(self.at)
            line = self.buffer.readline()
            if line.endswith(b"\n"):
                self.at += len(line)
                return line[:-1]
            try:
                part = next(self.parts)
            except StopIteration:
                assert self.at == self.buffer.getbuffer().nbytes, "the last line has no end"
                raise
            self.buffer.seek(0, io.SEEK_END)
            self.buffer.write(part["PayloadPart"]["Bytes"])
