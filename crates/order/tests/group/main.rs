mod net;
mod review;
mod situations;
