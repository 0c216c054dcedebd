//! Everything that is tested with real files, devices and sockets.

mod device;
