mod data;
mod forks;
mod founding;
mod net;
mod review;
mod situations;
mod suspicion;
