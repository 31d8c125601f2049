//! Places that are used again and again, for what is too large to be moved about.

use roadtrain_system::ring::UserData;

/// Values by index. Each kind of what waits has a slab of its own, so that a small one is not as large as the largest.
pub(crate) struct Slab<T> {
    places: Vec<Option<T>>,
    /// Which use of its place a value is: 24 bits.
    generations: Vec<u32>,
    free: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Slab { places: Vec::new(), generations: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slab<T> {
    #[inline]
    pub(crate) fn insert(&mut self, value: T) -> u32 {
        let Some(index) = self.free.pop() else {
            self.places.push(Some(value));
            self.generations.push(0);
            return (self.places.len() - 1) as u32;
        };
        self.places[index as usize] = Some(value);
        index
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, index: u32) -> Option<&mut T> {
        self.places.get_mut(index as usize)?.as_mut()
    }

    #[inline]
    pub(crate) fn take(&mut self, index: u32) -> Option<T> {
        let value = self.places.get_mut(index as usize)?.take()?;
        self.release(index);
        Some(value)
    }

    /// Drops a value where it is.
    #[inline]
    pub(crate) fn remove(&mut self, index: u32) {
        if let Some(place @ Some(_)) = self.places.get_mut(index as usize) {
            *place = None;
            self.release(index);
        }
    }

    fn release(&mut self, index: u32) {
        let generation = &mut self.generations[index as usize];
        *generation = (*generation + 1) & UserData::GENERATION_MASK;
        self.free.push(index);
    }

    /// Which use of its place the value there is.
    pub(crate) fn generation(&self, index: u32) -> u32 {
        self.generations[index as usize]
    }

    pub(crate) fn is_current(&self, index: u32, generation: u32) -> bool {
        self.generations.get(index as usize) == Some(&generation)
    }

    /// The first value of which `is_it` is true.
    pub(crate) fn find(&self, is_it: impl Fn(&T) -> bool) -> Option<u32> {
        self.places
            .iter()
            .position(|place| place.as_ref().is_some_and(&is_it))
            .map(|index| index as u32)
    }
}
