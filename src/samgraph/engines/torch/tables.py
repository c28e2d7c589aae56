"""Tables that a captured graph reads through their address, wherever they are at the time."""

import torch


class Table:
    """The rows of a tensor [P, ...] at an address that may change between replays."""

    def __init__(self, rows: torch.Tensor) -> None:
        self.shape, self.row_shape = rows.shape, rows.shape[1:]
        self.dtype, self.device = rows.dtype, rows.device
        self.address = torch.zeros(2, dtype=torch.int64, device=rows.device)  # and row count
        self._known = (0, 0)
        self.point_to(rows)

    def point_to(self, rows: torch.Tensor) -> None:
        """Read this tensor from now on; it must be contiguous."""
        wanted = (rows.data_ptr(), len(rows))
        if wanted != self._known:  # filled by kernels: no host copy to wait for
            for index, number in enumerate(wanted):
                self.address[index].fill_(number)
            self._known, self.shape = wanted, rows.shape
