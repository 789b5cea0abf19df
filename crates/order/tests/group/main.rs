mod data;
mod forks;
mod founding;
mod hostile;
mod net;
mod review;
mod situations;
mod suspicion;
