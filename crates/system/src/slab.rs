//! Places that are used again and again, for what is too large to be moved about.

use crate::ring::UserData;

/// Values by index. Each kind of what waits has a slab of its own, so that a small one is not as large as the largest.
#[derive(Debug)]
pub struct Slab<T> {
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
    /// Puts a value into a place that is free: its index.
    #[inline]
    pub fn insert(&mut self, value: T) -> u32 {
        let Some(index) = self.free.pop() else {
            self.places.push(Some(value));
            self.generations.push(0);
            return (self.places.len() - 1) as u32;
        };
        self.places[index as usize] = Some(value);
        index
    }

    /// The value there, if there is one.
    #[inline]
    pub fn get(&self, index: u32) -> Option<&T> {
        self.places.get(index as usize)?.as_ref()
    }

    /// The value there, to change it.
    #[inline]
    pub fn get_mut(&mut self, index: u32) -> Option<&mut T> {
        self.places.get_mut(index as usize)?.as_mut()
    }

    /// Takes a value from its place.
    #[inline]
    pub fn take(&mut self, index: u32) -> Option<T> {
        let value = self.places.get_mut(index as usize)?.take()?;
        self.release(index);
        Some(value)
    }

    /// Drops a value where it is.
    #[inline]
    pub fn remove(&mut self, index: u32) {
        if let Some(place @ Some(_)) = self.places.get_mut(index as usize) {
            *place = None;
            self.release(index);
        }
    }

    fn release(&mut self, index: u32) {
        self.renew(index);
        self.free.push(index);
    }

    /// The value stays, and counts as another use of its place from now on.
    #[inline]
    pub fn renew(&mut self, index: u32) {
        let generation = &mut self.generations[index as usize];
        *generation = (*generation + 1) & UserData::GENERATION_MASK;
    }

    /// All values, with their indices.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        (0..).zip(&self.places).filter_map(|(index, place)| Some((index, place.as_ref()?)))
    }

    /// How many values there are.
    #[inline]
    #[must_use]
    pub fn count(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// Which use of its place the value there is.
    #[inline]
    #[must_use]
    pub fn generation(&self, index: u32) -> u32 {
        self.generations[index as usize]
    }

    /// Whether the value there is that use of its place.
    #[inline]
    #[must_use]
    pub fn is_current(&self, index: u32, generation: u32) -> bool {
        self.generations.get(index as usize) == Some(&generation)
    }

    /// The first value of which `is_it` is true.
    #[must_use]
    pub fn find(&self, is_it: impl Fn(&T) -> bool) -> Option<u32> {
        self.places
            .iter()
            .position(|place| place.as_ref().is_some_and(&is_it))
            .map(|index| index as u32)
    }
}
